{{/* What a schema can't say: refused here, before a pod would refuse it again and again. */}}
{{- define "equipoise.checks" -}}
{{- if not (or .Values.agent.enabled (include "equipoise.balancers" . | fromJsonArray)) -}}
{{- fail "rotation.enabled: expected true, or another balancer or the agent to be enabled, since nothing would be done" -}}
{{- end -}}
{{- if and .Values.dashboard.enabled (eq (int .Values.dashboard.port) (int .Values.port)) -}}
{{- fail (printf "dashboard.port: expected another than port, since both are in one pod, got %d" (int .Values.port)) -}}
{{- end -}}
{{- $lease := merge (dict) (default (dict) .Values.config.lease) (dict "retrySeconds" 2 "renewSeconds" 10 "durationSeconds" 15) -}}
{{- if not (and (lt (float64 $lease.retrySeconds) (float64 $lease.renewSeconds)) (lt (float64 $lease.renewSeconds) (float64 $lease.durationSeconds))) -}}
{{- fail (printf "config.lease: expected retrySeconds < renewSeconds < durationSeconds, got %v, %v and %v" $lease.retrySeconds $lease.renewSeconds $lease.durationSeconds) -}}
{{- end -}}
{{- $bounds := include "equipoise.spans" . | fromYaml -}}
{{- range $path := keys $bounds | sortAlpha -}}
{{- $value := $.Values -}}
{{- range splitList "." $path -}}
{{- $value = get (default (dict) $value) . -}}
{{- end -}}
{{- $least := index (get $bounds $path) 0 -}}
{{- $most := index (get $bounds $path) 1 -}}
{{- $seconds := include "equipoise.seconds" $value | float64 -}}
{{- if and (ne (toString $value) "") (or (lt $seconds (float64 $least)) (gt $seconds (float64 $most))) -}}
{{- fail (printf "%s: expected from %v to %v seconds, got %v" $path $least $most $value) -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{/* How short and how long each span may be, in seconds, as the programs take them. */}}
{{- define "equipoise.spans" -}}
agent.interval: [1, 3600]
pools.lease: [1, 604800]
config.intervals.rotation: [1, 86400]
config.intervals.recommendation: [1, 86400]
config.intervals.proportional: [1, 86400]
config.intervals.pools: [1, 86400]
config.journal.ageMax: [0.001, 1.0e+12]
config.pools.missing: [0, 86400]
config.prometheus.timeout: [0.001, 3600]
config.proportional.change: [0, 86400]
config.proportional.rollout: [0, 86400]
{{- end -}}

{{/* A span such as 90, 90s or 1h30m in seconds. */}}
{{- define "equipoise.seconds" -}}
{{- $units := dict "ms" 0.001 "s" 1.0 "m" 60.0 "h" 3600.0 "d" 86400.0 "w" 604800.0 -}}
{{- $parts := regexFindAll "[0-9.]+(ms|[smhdw])" (toString .) -1 -}}
{{- $seconds := ternary 0.0 (float64 .) (not (empty $parts)) -}}
{{- range $parts -}}
{{- $unit := regexFind "[a-z]+" . -}}
{{- $seconds = addf $seconds (mulf (trimSuffix $unit . | float64) (get $units $unit)) -}}
{{- end -}}
{{- $seconds -}}
{{- end -}}
