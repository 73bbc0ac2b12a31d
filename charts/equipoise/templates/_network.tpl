{{/* Rules of NetworkPolicies: who may come in, and what may be reached. */}}

{{- define "equipoise.ingress" -}}
- ports:
    - port: {{ .port }}
      protocol: TCP
  {{- with .from }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "equipoise.egress.dns" -}}
# Names.
- ports:
    - port: 53
      protocol: UDP
    - port: 53
      protocol: TCP
{{- end -}}

{{- define "equipoise.egress.ports" -}}
{{- range . }}
    - port: {{ . }}
      protocol: TCP
{{- end }}
{{- end -}}

{{- define "equipoise.egress.apiServer" -}}
{{ include "equipoise.egress.dns" . }}
# The API server.
- ports:
    {{- include "equipoise.egress.ports" .Values.networkPolicy.apiServer.ports }}
  {{- with .Values.networkPolicy.apiServer.cidrs }}
  to:
    {{- range . }}
    - ipBlock:
        cidr: {{ . }}
    {{- end }}
  {{- end }}
{{- end -}}

{{/* With an address the port is known, unless somebody says otherwise; without one it is asked through the API server. */}}
{{- define "equipoise.egress.prometheus" -}}
{{- $given := .Values.networkPolicy.prometheus -}}
{{- $ports := $given.ports -}}
{{- $url := dig "prometheus" "url" "" .Values.config -}}
{{- if and $url (not $ports) -}}
{{- $host := (urlParse $url).host -}}
{{- $port := regexFind ":[0-9]+$" $host | trimPrefix ":" -}}
{{- $ports = list (int (default (ternary 443 80 (hasPrefix "https" $url)) $port)) -}}
{{- end -}}
{{- if $ports }}
# Prometheus.
- ports:
    {{- include "equipoise.egress.ports" $ports }}
  {{- with $given.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "equipoise.egress.redis" -}}
# Redis.
- ports:
    {{- include "equipoise.egress.ports" .Values.networkPolicy.redis.ports }}
  {{- with .Values.networkPolicy.redis.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}
