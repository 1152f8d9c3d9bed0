{{- /*
The Deployment of a service, and the ConfigMap of its settings.
Takes (dict "root" $ "component" "edge" "settings" .Values.edge "ports" PORTS "env" YAML "volumes" YAML "mounts" YAML "files" DICT "alone" BOOL):
ports by name, and the parts specific to this service; with "alone" there is never more than one pod.
Invariant: services differ only by that dict.
*/ -}}

{{- define "switchboard.checkDrain" -}}
{{- /* Time for which a process serves before it drains. */ -}}
{{- $leave := ceil (divf (index .settings.settings "leave-ms" | default 0) 1000) | int64 }}
{{- $needed := add .settings.drain.preStopSeconds $leave .settings.drain.timeoutSeconds 30 }}
{{- if lt (int64 .settings.terminationGracePeriodSeconds) $needed }}
{{- fail (printf "%s.terminationGracePeriodSeconds is %d, but preStopSeconds + leave-ms + timeoutSeconds + 30 is %d: pods would be killed while they drain" .component (int64 .settings.terminationGracePeriodSeconds) $needed) }}
{{- end }}
{{- end -}}

{{- define "switchboard.checkSettings" -}}
{{- $taken := dict }}
{{- range include "switchboard.service.env" . | fromYamlArray }}{{ $_ := set $taken .name true }}{{ end }}
{{- range $name, $_ := .settings.settings }}
{{- if regexMatch "(-key|-listen|^database-url|^redis-(url|ca)|^config)$" $name }}
{{- fail (printf "%s.settings.%s may not be set there: secrets are named by their existingSecret values, and ports are the chart's" $.component $name) }}
{{- end }}
{{- /* The environment takes precedence over the file. */ -}}
{{- $variable := printf "SWITCHBOARD_%s" ($name | replace "-" "_" | upper) }}
{{- if or (hasKey $taken $variable) (eq $name "log-level") }}
{{- fail (printf "%s.settings.%s would do nothing: the pod has the variable of that setting already, from another value of the chart or from extraEnv; set it there" $.component $name) }}
{{- end }}
{{- end }}
{{- end -}}

{{- /*
Number of pods; with autoscaling the current number, because a Deployment without a number falls to one pod.
Takes (dict "settings" .Values.edge "live" DEPLOYMENT), the last of which is empty when Helm only renders.
*/ -}}
{{- define "switchboard.replicas" -}}
{{- if not .settings.autoscaling.enabled }}
replicas: {{ .settings.replicas }}
{{- else if .live }}
replicas: {{ max (int64 .live.spec.replicas) (int64 .settings.autoscaling.minReplicas) }}
{{- end }}
{{- end -}}

{{- define "switchboard.files" -}}
{{- $files := deepCopy (.files | default dict) }}
{{- with .settings.settings }}{{ $_ := set $files "switchboard.toml" (include "switchboard.settingsFile" .) }}{{ end }}
{{- range $name, $text := $files }}
{{ $name }}: |
  {{- trim $text | nindent 2 }}
{{- end }}
{{- end -}}

{{- define "switchboard.service.env" -}}
{{- include "switchboard.logsEnv" .root }}
- name: SWITCHBOARD_NODE_NAME
  valueFrom:
    fieldRef:
      fieldPath: metadata.name
- name: SWITCHBOARD_DRAIN_TIMEOUT_S
  value: {{ .settings.drain.timeoutSeconds | quote }}
{{- with .root.Values.telemetry }}
{{- if .otlpEndpoint }}
{{- include "switchboard.plainEnv" (list "SWITCHBOARD_OTLP_ENDPOINT" .otlpEndpoint) }}
- name: SWITCHBOARD_TRACE_SAMPLE_RATIO
  value: {{ .sampleRatio | quote }}
{{- end }}
{{- end }}
{{- if .settings.settings }}
- name: SWITCHBOARD_CONFIG
  value: /etc/switchboard/settings/switchboard.toml
{{- end }}
{{- include "switchboard.redisEnv" .root }}
{{- .env }}
{{- with .settings.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- define "switchboard.service.container" -}}
{{ include "switchboard.container" .root }}
args: [{{ .component }}]
env:
  {{- include "switchboard.service.env" . | nindent 2 }}
{{- with .settings.extraEnvFrom }}
envFrom:
  {{- toYaml . | nindent 2 }}
{{- end }}
ports:
  {{- range .ports }}
  - name: {{ .name }}
    containerPort: {{ .port }}
    protocol: TCP
  {{- end }}
  - name: admin
    containerPort: 9600
    protocol: TCP
# The admin port is opened first and closed last.
startupProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 2
  failureThreshold: 30
livenessProbe:
  httpGet: {path: /healthz, port: admin}
  periodSeconds: 10
  timeoutSeconds: 5
  failureThreshold: 6
readinessProbe:
  httpGet: {path: /readyz, port: admin}
  periodSeconds: 5
  timeoutSeconds: 3
  failureThreshold: 2
{{- if .settings.drain.preStopSeconds }}
lifecycle:
  preStop:
    # Balancers remove the pod during this time.
    sleep:
      seconds: {{ .settings.drain.preStopSeconds }}
{{- end }}
resources:
  {{- toYaml .settings.resources | nindent 2 }}
{{- $mounts := list }}
{{- $files := include "switchboard.files" . }}
{{- $redis := include "switchboard.redisMount" .root | trim }}
{{- if or $files $redis .mounts .settings.extraVolumeMounts }}
volumeMounts:
  {{- if $files }}
  - name: settings
    mountPath: /etc/switchboard/settings
    readOnly: true
  {{- end }}
  {{- with $redis }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .mounts }}
  {{- . | nindent 2 }}
  {{- end }}
  {{- with .settings.extraVolumeMounts }}
  {{- toYaml . | nindent 2 }}
  {{- end }}
{{- end }}
{{- end -}}

{{- define "switchboard.service.deployment" -}}
{{- include "switchboard.checkDrain" . }}
{{- include "switchboard.checkSettings" . }}
{{- $fullname := include "switchboard.fullname" .root }}
{{- $files := include "switchboard.files" . }}
{{- if $files }}
apiVersion: v1
kind: ConfigMap
metadata:
  name: {{ $fullname }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "switchboard.labels" . | nindent 4 }}
data:
  {{- $files | trim | nindent 2 }}
---
{{- end }}
apiVersion: apps/v1
kind: Deployment
metadata:
  name: {{ $fullname }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "switchboard.labels" . | nindent 4 }}
spec:
  {{- $live := lookup "apps/v1" "Deployment" .root.Release.Namespace (printf "%s-%s" $fullname .component) }}
  {{- with include "switchboard.replicas" (dict "settings" .settings "live" $live) | trim }}
  {{- . | nindent 2 }}
  {{- end }}
  minReadySeconds: {{ .settings.minReadySeconds }}
  # Kubernetes requires it to be greater than minReadySeconds.
  progressDeadlineSeconds: {{ add 600 .settings.minReadySeconds }}
  revisionHistoryLimit: 5
  strategy:
    {{- if .alone }}
    # Two pods at a time would write to one folder.
    type: Recreate
    {{- else }}
    type: RollingUpdate
    rollingUpdate:
      maxSurge: 1
      maxUnavailable: 0
    {{- end }}
  selector:
    matchLabels:
      {{- include "switchboard.selectorLabels" . | nindent 6 }}
  template:
    metadata:
      labels:
        {{- include "switchboard.podLabels" . | nindent 8 }}
      {{- if or $files .settings.podAnnotations }}
      annotations:
        {{- if $files }}
        checksum/settings: {{ sha256sum $files }}
        {{- end }}
        {{- with .settings.podAnnotations }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
    spec:
      serviceAccountName: {{ include "switchboard.serviceAccountName" .root }}
      {{- include "switchboard.podSecurity" .root | nindent 6 }}
      terminationGracePeriodSeconds: {{ .settings.terminationGracePeriodSeconds }}
      {{- with include "switchboard.nodes" .settings | trim }}
      {{- . | nindent 6 }}
      {{- end }}
      topologySpreadConstraints:
        {{- include "switchboard.spread" . | trim | nindent 8 }}
      containers:
        - name: {{ .component }}
          {{- include "switchboard.service.container" . | nindent 10 }}
      {{- $redis := include "switchboard.redisVolume" .root | trim }}
      {{- if or $files $redis .volumes .settings.extraVolumes }}
      volumes:
        {{- if $files }}
        - name: settings
          configMap:
            name: {{ $fullname }}-{{ .component }}
        {{- end }}
        {{- with $redis }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .volumes }}
        {{- . | nindent 8 }}
        {{- end }}
        {{- with .settings.extraVolumes }}
        {{- toYaml . | nindent 8 }}
        {{- end }}
      {{- end }}
{{- end -}}

{{- /* The ClusterIP Service of an HTTP service. */ -}}
{{- define "switchboard.service.http" -}}
apiVersion: v1
kind: Service
metadata:
  name: {{ include "switchboard.fullname" .root }}-{{ .component }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "switchboard.labels" . | nindent 4 }}
  {{- with .settings.service.annotations }}
  annotations:
    {{- toYaml . | nindent 4 }}
  {{- end }}
spec:
  type: {{ .settings.service.type }}
  selector:
    {{- include "switchboard.selectorLabels" . | nindent 4 }}
  ports:
    - name: http
      port: {{ .settings.service.port }}
      targetPort: http
      protocol: TCP
      appProtocol: http
{{- end -}}
