{{- /* What the pods of all services, the job and the test have in common. Never: a right that the restricted Pod Security Standard forbids. */ -}}

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
# Kubernetes would set SWITCHBOARD_… variables for services of that name.
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

{{- /* Takes the values of a service, of the job or of the test: on which nodes its pods run. */ -}}
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
