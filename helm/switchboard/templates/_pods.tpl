{{- /*
Common parts of the pods of all services, the job and the test. Invariant: they comply with the
restricted Pod Security Standard.
*/ -}}

{{- define "switchboard.podSecurity" -}}
securityContext:
  runAsNonRoot: true
  {{- with .Values.security.runAsUser }}
  runAsUser: {{ int64 . }}
  {{- end }}
  {{- with .Values.security.runAsGroup }}
  runAsGroup: {{ int64 . }}
  {{- end }}
  {{- with .Values.security.fsGroup }}
  fsGroup: {{ int64 . }}
  fsGroupChangePolicy: OnRootMismatch
  {{- end }}
  seccompProfile:
    type: RuntimeDefault
automountServiceAccountToken: false
# Kubernetes would set SWITCHBOARD_… variables for Services of that name.
enableServiceLinks: false
{{- with .Values.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .Values.image.pullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "switchboard.container" -}}
image: {{ include "switchboard.image" . | quote }}
imagePullPolicy: {{ .Values.image.pullPolicy }}
securityContext:
  allowPrivilegeEscalation: false
  readOnlyRootFilesystem: true
  capabilities:
    drop: [ALL]
{{- end -}}

{{- /* Takes a quantity of memory, as 512Mi, 2G or 1073741824; returns bytes. */ -}}
{{- define "switchboard.bytes" -}}
{{- $text := printf "%v" . }}
{{- $number := regexFind "^[0-9.]+(e[+-]?[0-9]+)?" $text }}
{{- $unit := trimPrefix $number $text }}
{{- $units := dict "" 1 "m" 0.001 "k" 1000 "M" 1000000 "G" 1000000000 "T" 1000000000000 "Ki" 1024 "Mi" 1048576 "Gi" 1073741824 "Ti" 1099511627776 }}
{{- if or (not $number) (not (hasKey $units $unit)) }}
{{- fail (printf "%s is no quantity of memory" $text) }}
{{- end }}
{{- mulf (float64 $number) (index $units $unit) }}
{{- end -}}

{{- /*
Takes the values of a service, of the job or of the test; returns the scheduling of its pods.
*/ -}}
{{- define "switchboard.nodes" -}}
{{- with .nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end -}}

{{- /* Takes the dict of a service (see _services.tpl). */ -}}
{{- define "switchboard.spread" -}}
{{- if not (kindIs "invalid" .settings.topologySpreadConstraints) }}
{{- toYaml .settings.topologySpreadConstraints }}
{{- else }}
{{- range list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
- maxSkew: 1
  topologyKey: {{ . }}
  whenUnsatisfiable: ScheduleAnyway
  labelSelector:
    matchLabels:
      {{- include "switchboard.selectorLabels" $ | nindent 6 }}
  matchLabelKeys: [pod-template-hash]
{{- end }}
{{- end }}
{{- end -}}
