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
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: operator
{{- end -}}

{{- define "equipoise.labels" -}}
{{ include "equipoise.selectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: equipoise
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}

{{- define "equipoise.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{- default (include "equipoise.fullname" .) .Values.serviceAccount.name -}}
{{- else -}}
{{- required "serviceAccount.name: expected a name when serviceAccount.create is false" .Values.serviceAccount.name -}}
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

{{/* The settings of the operator: the user's, and what only the chart can know. */}}
{{- define "equipoise.config" -}}
{{- $config := deepCopy .Values.config -}}
{{- $balancers := list -}}
{{- range $name := list "rotation" "recommendation" "proportional" "pools" -}}
{{- if (get $.Values $name).enabled -}}
{{- $balancers = append $balancers $name -}}
{{- end -}}
{{- end -}}
{{- $_ := set $config "balancers" $balancers -}}
{{- if .Values.pools.enabled -}}
{{- $_ := set $config "pools" (merge (fromYaml (include "equipoise.pools" .)) (default (dict) $config.pools)) -}}
{{- end -}}
{{- $_ := set $config "metricsFrom" (include "equipoise.metricsFrom" .) -}}
{{- $_ := set $config "http" (dict "address" (printf ":%d" (int .Values.port))) -}}
{{- $lease := default (dict) $config.lease -}}
{{- $_ := set $config "lease" (merge (dict "name" (include "equipoise.fullname" .) "namespace" .Release.Namespace) $lease) -}}
{{- if .Values.journal.enabled -}}
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
app.kubernetes.io/instance: {{ .Release.Name }}
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
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/component: agent
{{- end -}}

{{- define "equipoise.agentLabels" -}}
{{ include "equipoise.agentSelectorLabels" . }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
app.kubernetes.io/part-of: equipoise
app.kubernetes.io/managed-by: {{ .Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .Chart.Name .Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{- end -}}
