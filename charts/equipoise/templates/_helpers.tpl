{{- define "equipoise.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" -}}
{{- end -}}

{{- define "equipoise.fullname" -}}
{{- $name := default .Chart.Name .Values.nameOverride -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 63 | trimSuffix "-" -}}
{{- else if contains $name .Release.Name -}}
{{- .Release.Name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | replace "." "-" | trunc 63 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}

{{- define "equipoise.selectorLabels" -}}
app.kubernetes.io/name: {{ include "equipoise.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "equipoise.labels" -}}
{{ include "equipoise.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: equipoise
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/*
The operators of the release, as a list: one that runs all balancers, whose name is "", or with `split` one for each
balancer, by its name. What follows takes root, and the operator as part.
*/}}
{{- define "equipoise.operators" -}}
{{- if .Values.split -}}
{{- include "equipoise.balancers" . -}}
{{- else -}}
[""]
{{- end -}}
{{- end -}}

{{/* The balancers that are enabled and run in an operator, as a list. */}}
{{- define "equipoise.balancers" -}}
{{- $balancers := list -}}
{{- range $name := list "rotation" "recommendation" "proportional" "pools" -}}
{{- if (get $.Values $name).enabled -}}
{{- $balancers = append $balancers $name -}}
{{- end -}}
{{- end -}}
{{- toJson $balancers -}}
{{- end -}}

{{/* Of its Deployment, Lease, Service, PodDisruptionBudget and ConfigMap. */}}
{{- define "equipoise.operatorName" -}}
{{- $full := include "equipoise.fullname" .root -}}
{{- if .part -}}
{{- printf "%s-%s-operator" ($full | trunc 39 | trimSuffix "-") .part -}}
{{- else -}}
{{- $full -}}
{{- end -}}
{{- end -}}

{{- define "equipoise.operatorSelectorLabels" -}}
{{ include "equipoise.selectorLabels" .root }}
{{- if .part }}
equipoise.dev/balancer: {{ .part }}
{{- end }}
{{- end -}}

{{- define "equipoise.operatorLabels" -}}
{{ include "equipoise.labels" .root }}
{{- if .part }}
equipoise.dev/balancer: {{ .part }}
{{- end }}
{{- end -}}

{{- define "equipoise.serviceAccountName" -}}
{{- $given := .root.Values.serviceAccount -}}
{{- if and .part (not $given.create) -}}
{{- fail "serviceAccount.create: expected true with split, since each operator has an account of its own" -}}
{{- else if not $given.create -}}
{{- required "serviceAccount.name: expected a name when serviceAccount.create is false" $given.name -}}
{{- else if and .part $given.name -}}
{{- printf "%s-%s" $given.name .part -}}
{{- else -}}
{{- default (include "equipoise.operatorName" .) $given.name -}}
{{- end -}}
{{- end -}}

{{- define "equipoise.image" -}}
{{- if .Values.image.digest -}}
{{- printf "%s@%s" .Values.image.repository .Values.image.digest -}}
{{- else -}}
{{- printf "%s:%s" .Values.image.repository (default .Chart.AppVersion .Values.image.tag) -}}
{{- end -}}
{{- end -}}

{{/* "yes" when Prometheus has an address: in the settings, or in a variable that may come from a Secret. */}}
{{- define "equipoise.hasPrometheusUrl" -}}
{{- $found := ternary "yes" "" (not (empty (dig "prometheus" "url" "" .Values.config))) -}}
{{- range .Values.extraEnv -}}
{{- if has .name (list "EQUIPOISE_PROMETHEUS_URL" "EQUIPOISE_PROMETHEUS__URL") -}}
{{- $found = "yes" -}}
{{- end -}}
{{- end -}}
{{- $found -}}
{{- end -}}

{{/* Where usage comes from, as narrow as the values allow: the rights follow from it. */}}
{{- define "equipoise.metricsFrom" -}}
{{- $asked := dig "metricsFrom" "auto" .Values.config -}}
{{- if eq $asked "metrics-server" -}}
metrics-server
{{- else if include "equipoise.hasPrometheusUrl" . -}}
prometheus
{{- else if .Values.prometheus.discover -}}
{{ $asked }}
{{- else if eq $asked "auto" -}}
metrics-server
{{- else -}}
{{- fail "config.metricsFrom: prometheus: expected config.prometheus.url, or prometheus.discover: true" -}}
{{- end -}}
{{- end -}}

{{/* "yes" when a Prometheus is to be looked for. */}}
{{- define "equipoise.isDiscovering" -}}
{{- if and .Values.prometheus.discover (not (include "equipoise.hasPrometheusUrl" .)) (ne (include "equipoise.metricsFrom" .) "metrics-server") -}}
yes
{{- end -}}
{{- end -}}

{{/* Where a Prometheus is looked for: the operator knows the same default. */}}
{{- define "equipoise.prometheusNamespaces" -}}
{{- default (list "monitoring" .Release.Namespace) (dig "prometheus" "namespaces" (list) .Values.config) | uniq | toJson -}}
{{- end -}}

{{/*
"yes" for the operator that writes the status of the kinds of node quality of service: where there are agents, and with
`split` the first that reads nodes. Takes root, and the operator as part.
*/}}
{{- define "equipoise.writesQosStatus" -}}
{{- $names := without (include "equipoise.balancers" .root | fromJsonArray) "pools" -}}
{{- if and .root.Values.agent.enabled $names (or (not .part) (eq .part (first $names))) -}}
yes
{{- end -}}
{{- end -}}

{{/* The settings of the operator: the user's, and what only the chart can know. */}}
{{- define "equipoise.config" -}}
{{- $root := .root -}}
{{- $config := deepCopy $root.Values.config -}}
{{- $balancers := ternary (list .part) (include "equipoise.balancers" $root | fromJsonArray) (not (empty .part)) -}}
{{- $_ := set $config "balancers" $balancers -}}
{{- if has "pools" $balancers -}}
{{- $_ := set $config "pools" (merge (fromYaml (include "equipoise.pools" $root)) (default (dict) $config.pools)) -}}
{{- else -}}
{{- $_ := unset $config "pools" -}}
{{- end -}}
{{- $_ := set $config "metricsFrom" (include "equipoise.metricsFrom" $root) -}}
{{- $_ := set $config "qos" (dict "statuses" (not (empty (include "equipoise.writesQosStatus" .)))) -}}
{{- $_ := set $config "http" (dict "address" (printf ":%d" (int $root.Values.port))) -}}
{{- $lease := default (dict) $config.lease -}}
{{- $_ := set $config "lease" (merge (dict "name" (include "equipoise.operatorName" .) "namespace" $root.Release.Namespace) $lease) -}}
{{- if $root.Values.journal.enabled -}}
{{- $_ := set $config "journal" (merge (dict "path" "/var/lib/equipoise/journal.db") (default (dict) $config.journal)) -}}
{{- else -}}
{{- $_ := unset $config "journal" -}}
{{- end -}}
{{- toYaml $config -}}
{{- end -}}

{{/* How long the kubelet waits: the operator's own graceful stop, and some seconds more. */}}
{{- define "equipoise.gracePeriodSeconds" -}}
{{- add 10 (ceil (float64 (dig "stopSeconds" 20 .Values.config))) -}}
{{- end -}}

{{/* The settings of the pools that have a value of their own. */}}
{{- define "equipoise.pools" -}}
mode: {{ .Values.pools.mode }}
redisUrlFile: /etc/equipoise-redis/{{ .Values.pools.redis.key }}
acceptEviction: {{ .Values.pools.acceptEviction }}
prefix: {{ .Values.pools.prefix | quote }}
namespace: {{ default .Release.Namespace .Values.pools.namespace }}
selector: {{ required "pools.selector: expected the labels of the tiers' pods, such as app=voice-agent" .Values.pools.selector | quote }}
lease: {{ .Values.pools.lease }}
{{- end -}}

{{- define "equipoise.redisSecret" -}}
{{- required "pools.redis.secret: expected the name of a Secret that has the URL of a Redis" .Values.pools.redis.secret -}}
{{- end -}}

{{- define "equipoise.poolsSelectorLabels" -}}
app.kubernetes.io/name: {{ include "equipoise.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: pools
{{- end -}}

{{- define "equipoise.poolsLabels" -}}
{{ include "equipoise.poolsSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: equipoise
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "equipoise.agent" -}}
{{- printf "%s-agent" (include "equipoise.fullname" . | trunc 57 | trimSuffix "-") -}}
{{- end -}}

{{- define "equipoise.agentSelectorLabels" -}}
app.kubernetes.io/name: {{ include "equipoise.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: agent
{{- end -}}

{{- define "equipoise.agentLabels" -}}
{{ include "equipoise.agentSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: equipoise
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{/* Our own taint must not keep away whoever takes it off again. */}}
{{- define "equipoise.ownTaint" -}}
- key: ensurance.equipoise.dev/waterline
  operator: Exists
  effect: NoSchedule
{{- end -}}

{{- define "equipoise.retireLabels" -}}
app.kubernetes.io/name: {{ include "equipoise.name" . }}
app.kubernetes.io/instance: {{ .Release.Name | quote }}
app.kubernetes.io/component: agent-retire
app.kubernetes.io/part-of: equipoise
app.kubernetes.io/managed-by: {{ .Release.Service }}
{{- end -}}
