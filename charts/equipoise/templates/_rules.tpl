{{/*
What may be done, one named list of rules for each reach. Each rule says why it is there. No list has a wildcard, a
Secret, or a right to change rights; templates/*-rbac.yaml gives them out.

"namespaced" rules hold in every namespace, or only in config.namespaces where that is set.
*/}}

{{/* What every operator needs. */}}
{{- define "equipoise.rules.pauses.cluster" -}}
# Annotations on namespaces say stop; a stop has to arrive from anywhere.
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["list", "watch"]
{{- end -}}

{{- define "equipoise.rules.pauses.namespaced" -}}
{{- end -}}

{{/* What every balancer needs that is about workloads: all but pools. */}}
{{- define "equipoise.rules.cache.cluster" -}}
# Where pods run.
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["list", "watch"]
{{- end -}}

{{/* What is needed to know usage: for rotation and recommendation. */}}
{{- define "equipoise.rules.measuring.cluster" -}}
{{- if include "equipoise.isDiscovering" . }}
# To find a Prometheus in the namespaces that are named, by Prometheus objects and by Services with well-known names;
# everywhere, so that the log can say what was seen elsewhere.
- apiGroups: ["monitoring.coreos.com"]
  resources: ["prometheuses"]
  verbs: ["list"]
- apiGroups: [""]
  resources: ["services"]
  verbs: ["list"]
{{- end }}
{{- if eq (include "equipoise.usageReach" .) "cluster" }}
{{ include "equipoise.rules.usage" . }}
{{- end }}
{{- end -}}

{{/* Only in the namespaces where a Prometheus is looked for. */}}
{{- define "equipoise.rules.measuring.prometheus" -}}
{{- if include "equipoise.isDiscovering" . }}
# To ask a Prometheus, by GET alone, through the API server.
- apiGroups: [""]
  resources: ["services/proxy"]
  verbs: ["get"]
{{- end }}
{{- end -}}

{{- define "equipoise.rules.measuring.namespaced" -}}
{{- if eq (include "equipoise.usageReach" .) "namespaced" }}
{{ include "equipoise.rules.usage" . }}
{{- end }}
{{- end -}}

{{- define "equipoise.rules.cache.namespaced" -}}
# What is there: read once, then watched.
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list", "watch"]
- apiGroups: ["apps"]
  resources: ["deployments", "statefulsets", "replicasets"]
  verbs: ["list", "watch"]
# The target that a workload is held to.
- apiGroups: ["autoscaling"]
  resources: ["horizontalpodautoscalers"]
  verbs: ["list", "watch"]
# How many pods may be away.
- apiGroups: ["policy"]
  resources: ["poddisruptionbudgets"]
  verbs: ["list", "watch"]
{{- range .Values.scalableKinds }}
# The replicas and the selector of a kind that is not Kubernetes' own, and whether it asks to be left alone.
- apiGroups: [{{ .apiGroup | quote }}]
  resources: [{{ .resource | quote }}, {{ printf "%s/scale" .resource | quote }}]
  verbs: ["get"]
{{- end }}
{{- end -}}

{{- define "equipoise.rules.usage" -}}
# Usage of CPU, as metrics-server serves it.
- apiGroups: ["metrics.k8s.io"]
  resources: ["pods"]
  verbs: ["list"]
{{- end -}}

{{/* Up to ten namespaces are read one by one; beyond, the operator asks for one list of all. */}}
{{- define "equipoise.usageReach" -}}
{{- if ne (include "equipoise.metricsFrom" .) "prometheus" -}}
{{- ternary "cluster" "namespaced" (gt (len (uniq (dig "namespaces" (list) .Values.config))) 10) -}}
{{- end -}}
{{- end -}}

{{- define "equipoise.rules.rotation.cluster" -}}
# The policies; read again by name if another writer has changed the status.
- apiGroups: ["equipoise.dev"]
  resources: ["rotationpolicies"]
  verbs: ["get", "list", "watch"]
# What is answered: the reason, in the status. The spec is the user's.
- apiGroups: ["equipoise.dev"]
  resources: ["rotationpolicies/status"]
  verbs: ["patch"]
{{- end -}}

{{- define "equipoise.rules.rotation.namespaced" -}}
# The memory that a new leader needs: one ledger beside each workload, written by compare-and-swap.
- apiGroups: ["equipoise.dev"]
  resources: ["ledgers"]
  verbs: ["get", "list", "create", "update"]
# Autoscalers that are paused: their workloads are not changed. Without KEDA there are none.
- apiGroups: ["keda.sh"]
  resources: ["scaledobjects"]
  verbs: ["list"]
# What was done, told at the workload; patched to count up what is said again.
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- if .Values.rotation.evict }}
# The only deed. PodDisruptionBudgets are asked by the server; pods are never deleted.
- apiGroups: [""]
  resources: ["pods/eviction"]
  verbs: ["create"]
{{- end }}
{{- end -}}

{{- define "equipoise.rules.recommendation.cluster" -}}
# The Analytics and Recommendations; read again by name if another writer has changed them.
- apiGroups: ["analysis.crane.io"]
  resources: ["analytics", "recommendations"]
  verbs: ["get", "list", "watch"]
# Whose these kinds are: where Crane defined them, its objects are left alone unless compat.crane says otherwise.
- apiGroups: ["apiextensions.k8s.io"]
  resources: ["customresourcedefinitions"]
  resourceNames: ["analytics.analysis.crane.io", "recommendations.analysis.crane.io"]
  verbs: ["get"]
{{- end -}}

{{- define "equipoise.rules.recommendation.prometheus" -}}
{{- if include "equipoise.isDiscovering" . }}
# A week of usage is read by POST.
- apiGroups: [""]
  resources: ["services/proxy"]
  verbs: ["create"]
{{- end }}
{{- end -}}

{{- define "equipoise.rules.recommendation.namespaced" -}}
# What is answered; the second where the definition is Crane's, which has no status of its own.
- apiGroups: ["analysis.crane.io"]
  resources: ["analytics/status", "recommendations/status"]
  verbs: ["patch"]
- apiGroups: ["analysis.crane.io"]
  resources: ["analytics"]
  verbs: ["patch"]
# Advice, one object for each workload; deleted with the workload.
- apiGroups: ["analysis.crane.io"]
  resources: ["recommendations"]
  verbs: ["create", "patch", "delete"]
# What was done, told at the workload; patched to count up what is said again.
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- if .Values.recommendation.annotate }}
# The annotation that holds the advice, on the workload itself.
- apiGroups: ["apps"]
  resources: ["deployments", "statefulsets", "replicasets"]
  verbs: ["get", "patch"]
{{- end }}
{{- if .Values.recommendation.apply }}
# Advice that is adopted by itself: an HPA of our own, by server-side apply. Somebody else's is looked at, and left.
- apiGroups: ["autoscaling"]
  resources: ["horizontalpodautoscalers"]
  verbs: ["get", "create", "patch"]
- apiGroups: ["keda.sh"]
  resources: ["scaledobjects"]
  verbs: ["list"]
{{- end }}
{{- end -}}

{{- define "equipoise.rules.proportional.cluster" -}}
# The policies; read again by name if another writer has changed the status.
- apiGroups: ["scalingpolicy.kope.io"]
  resources: ["scalingpolicies"]
  verbs: ["get", "list", "watch"]
# What is answered, and the memory that a new leader needs. The spec is the user's.
- apiGroups: ["scalingpolicy.kope.io"]
  resources: ["scalingpolicies/status"]
  verbs: ["patch"]
{{- end -}}

{{- define "equipoise.rules.proportional.namespaced" -}}
# Targets that no other balancer has.
- apiGroups: ["apps"]
  resources: ["daemonsets"]
  verbs: ["list", "watch"]
# Whose requests a VerticalPodAutoscaler sets: those are left alone. Without VPA there is none.
- apiGroups: ["autoscaling.k8s.io"]
  resources: ["verticalpodautoscalers"]
  verbs: ["list"]
# What was done, told at the workload; patched to count up what is said again.
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- if or .Values.proportional.resize .Values.proportional.rollout }}
# A change that restarts something is written down first: one ledger beside each workload.
- apiGroups: ["equipoise.dev"]
  resources: ["ledgers"]
  verbs: ["get", "create", "update"]
# Who else sets the same values: their names are in the metadata.
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["get"]
- apiGroups: ["apps"]
  resources: ["deployments", "statefulsets", "replicasets", "daemonsets"]
  verbs: ["get"]
{{- end }}
{{- if .Values.proportional.resize }}
# Requests and limits of running pods, in place; nothing else of a pod can be changed by it.
- apiGroups: [""]
  resources: ["pods/resize"]
  verbs: ["patch"]
{{- end }}
{{- if .Values.proportional.rollout }}
# Requests and limits of templates, where pods can't be changed in place.
- apiGroups: ["apps"]
  resources: ["deployments", "statefulsets", "replicasets", "daemonsets"]
  verbs: ["patch"]
{{- end }}
{{- end -}}

{{/* What is needed to say of the kinds of node quality of service which are valid, and crossed on how many nodes. */}}
{{- define "equipoise.rules.qos.cluster" -}}
# What the agents follow; read again by name where a status was written by somebody else meanwhile.
- apiGroups: ["ensurance.crane.io"]
  resources: ["nodeqosensurancepolicies", "nodeqoss", "avoidanceactions", "podqoss"]
  verbs: ["get", "list"]
# What is answered, which agents do not: the counts over all nodes, in the status. The spec is the user's.
- apiGroups: ["ensurance.crane.io"]
  resources: ["nodeqosensurancepolicies/status", "nodeqoss/status", "avoidanceactions/status", "podqoss/status"]
  verbs: ["patch"]
# Whose these kinds are: where Crane defined them, its objects are left alone unless compat.crane says otherwise.
- apiGroups: ["apiextensions.k8s.io"]
  resources: ["customresourcedefinitions"]
  resourceNames:
    - nodeqosensurancepolicies.ensurance.crane.io
    - nodeqoss.ensurance.crane.io
    - avoidanceactions.ensurance.crane.io
    - podqoss.ensurance.crane.io
  verbs: ["get"]
{{- end -}}

{{- define "equipoise.rules.qos.namespaced" -}}
{{- end -}}

{{/*
A role and its binding for everywhere, and, where config.namespaces is set, one more of each in those namespaces;
where a Prometheus is looked for, one more of each in the namespaces that may have it.
Takes root, the operator as part, what the roles are called after, and the names of the rules that they have.
*/}}
{{- define "equipoise.roles" -}}
{{- $root := .root -}}
{{- $name := printf "%s-%s" (include "equipoise.fullname" $root) .called -}}
{{- $namespaces := dig "namespaces" (list) $root.Values.config -}}
{{- $everywhere := list -}}
{{- $namespaced := list -}}
{{- range .rules -}}
{{- $everywhere = append $everywhere (include (printf "equipoise.rules.%s.cluster" .) $root | trim) -}}
{{- $namespaced = append $namespaced (include (printf "equipoise.rules.%s.namespaced" .) $root | trim) -}}
{{- end -}}
{{- $rules := compact $namespaced | join "\n" -}}
{{- $subjects := include "equipoise.subjects" (dict "root" $root "part" .part) }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata:
  name: {{ $name }}
  labels:
    {{- include "equipoise.labels" $root | nindent 4 }}
rules:
  {{- compact $everywhere | join "\n" | nindent 2 }}
  {{- if and $rules (not $namespaces) }}
  {{- $rules | nindent 2 }}
  {{- end }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata:
  name: {{ $name }}
  labels:
    {{- include "equipoise.labels" $root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: ClusterRole
  name: {{ $name }}
subjects:
  {{- $subjects | nindent 2 }}
{{- $names := dict "root" $root "subjects" $subjects }}
{{- range ternary (uniq $namespaces) (list) (not (empty $rules)) }}
{{- include "equipoise.role" (merge (dict "name" $name "namespace" . "rules" $rules) $names) }}
{{- end }}
{{- $asking := list }}
{{- range .rules }}
{{- if has . (list "measuring" "recommendation") }}
{{- $asking = append $asking (include (printf "equipoise.rules.%s.prometheus" .) $root | trim) }}
{{- end }}
{{- end }}
{{- $asking = compact $asking | join "\n" }}
{{- range ternary (include "equipoise.prometheusNamespaces" $root | fromJsonArray) (list) (not (empty $asking)) }}
{{- include "equipoise.role" (merge (dict "name" (printf "%s-prometheus" $name) "namespace" . "rules" $asking) $names) }}
{{- end }}
{{- end -}}

{{/* One Role and its binding. */}}
{{- define "equipoise.role" }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "equipoise.labels" .root | nindent 4 }}
rules:
  {{- .rules | nindent 2 }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata:
  name: {{ .name }}
  namespace: {{ .namespace }}
  labels:
    {{- include "equipoise.labels" .root | nindent 4 }}
roleRef:
  apiGroup: rbac.authorization.k8s.io
  kind: Role
  name: {{ .name }}
subjects:
  {{- .subjects | nindent 2 }}
{{- end -}}

{{- define "equipoise.subjects" -}}
- kind: ServiceAccount
  name: {{ include "equipoise.serviceAccountName" . }}
  namespace: {{ .root.Release.Namespace }}
{{- end -}}

{{- define "equipoise.rules.agent" -}}
# The pods of its node. A watch of one node's pods can't be allowed apart from that of all.
- apiGroups: [""]
  resources: ["pods"]
  verbs: ["list", "watch"]
# Its node's labels, and whether our taint is on it.
- apiGroups: [""]
  resources: ["nodes"]
  verbs: ["get", "list", "watch"]
# Annotations on namespaces say stop.
- apiGroups: [""]
  resources: ["namespaces"]
  verbs: ["list", "watch"]
- apiGroups: ["ensurance.crane.io"]
  resources: ["nodeqosensurancepolicies", "nodeqoss", "avoidanceactions", "podqoss"]
  verbs: ["list", "watch"]
# Whose these kinds are.
- apiGroups: ["apiextensions.k8s.io"]
  resources: ["customresourcedefinitions"]
  resourceNames: ["nodeqosensurancepolicies.ensurance.crane.io"]
  verbs: ["get"]
# What was done, on the pod and on the node.
- apiGroups: [""]
  resources: ["events"]
  verbs: ["create", "patch"]
{{- if .Values.agent.evict }}
- apiGroups: [""]
  resources: ["pods/eviction"]
  verbs: ["create"]
# Whose the pod is, and whether the workload is whole.
- apiGroups: ["apps"]
  resources: ["deployments", "statefulsets", "replicasets"]
  verbs: ["get"]
# The intent of an eviction is written first, so that no other program evicts pods of the same workload.
- apiGroups: ["equipoise.dev"]
  resources: ["ledgers"]
  verbs: ["get", "create", "update"]
{{- end }}
{{- if .Values.agent.taint }}
# Its taint, and its conditions: that no new pod comes, and which rules are crossed, which the operator counts.
- apiGroups: [""]
  resources: ["nodes", "nodes/status"]
  verbs: ["patch"]
{{- end }}
{{- end -}}
