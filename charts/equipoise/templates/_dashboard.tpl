{{/* The container that shows the journal of the operator beside it. */}}
{{- define "equipoise.dashboard" -}}
{{- if not .Values.journal.enabled -}}
{{- fail "dashboard.enabled: expected journal.enabled, since there is nothing to show without it" -}}
{{- end -}}
- name: dashboard
  image: {{ include "equipoise.image" . | quote }}
  imagePullPolicy: {{ .Values.image.pullPolicy }}
  command: ["equipoise", "dashboard"]
  args:
    - --journal=/var/lib/equipoise/journal.db
    # On every address of the pod.
    - --host=
    - --port={{ .Values.dashboard.port }}
    - --token-file=/etc/equipoise-dashboard/{{ .Values.dashboard.tokenKey }}
    - --no-open
  ports:
    - name: dashboard
      containerPort: {{ .Values.dashboard.port }}
      protocol: TCP
  startupProbe:
    httpGet:
      path: /healthz
      port: dashboard
    periodSeconds: 2
    failureThreshold: 30
  livenessProbe:
    httpGet:
      path: /healthz
      port: dashboard
    periodSeconds: 10
    timeoutSeconds: 3
    failureThreshold: 3
  securityContext:
    allowPrivilegeEscalation: false
    readOnlyRootFilesystem: true
    capabilities:
      drop: ["ALL"]
  resources:
    {{- toYaml .Values.dashboard.resources | nindent 4 }}
  volumeMounts:
    - name: scratch
      mountPath: /var/lib/equipoise
      readOnly: true
    - name: dashboard-token
      mountPath: /etc/equipoise-dashboard
      readOnly: true
{{- end -}}
