{{- /*
Environment variables from values and secrets. Invariant: secrets are referenced, never inlined.
*/ -}}

{{- /* Takes (list NAME SECRET KEY); empty without a secret. */ -}}
{{- define "switchboard.secretEnv" -}}
{{- if index . 1 }}
- name: {{ index . 0 }}
  valueFrom:
    secretKeyRef:
      name: {{ index . 1 }}
      key: {{ index . 2 }}
{{- end }}
{{- end -}}

{{- /* Takes (list NAME VALUE); empty for an empty value. */ -}}
{{- define "switchboard.plainEnv" -}}
{{- if index . 1 }}
- name: {{ index . 0 }}
  value: {{ index . 1 | toString | quote }}
{{- end }}
{{- end -}}

{{- define "switchboard.logsEnv" -}}
- name: SWITCHBOARD_LOG
  value: {{ .Values.logs.level | quote }}
- name: SWITCHBOARD_LOG_FORMAT
  value: {{ .Values.logs.format }}
{{- end -}}

{{- define "switchboard.redisEnv" -}}
{{- include "switchboard.secretEnv" (list "REDIS_URL" .Values.redis.existingSecret .Values.redis.key) }}
- name: SWITCHBOARD_REDIS_PREFIX
  value: {{ .Values.redis.prefix | quote }}
{{- include "switchboard.plainEnv" (list "SWITCHBOARD_KEY_SET_PUBLIC_KEY" (join "," .Values.masterKey.publicKeys)) }}
{{- if .Values.redis.ca.existingSecret }}
- name: SWITCHBOARD_REDIS_CA
  value: /etc/switchboard/redis/{{ .Values.redis.ca.key }}
{{- end }}
{{- end -}}

{{- define "switchboard.redisVolume" -}}
{{- with .Values.redis.ca.existingSecret }}
- name: redis-ca
  secret:
    secretName: {{ . }}
{{- end }}
{{- end -}}

{{- define "switchboard.redisMount" -}}
{{- if .Values.redis.ca.existingSecret }}
- name: redis-ca
  mountPath: /etc/switchboard/redis
  readOnly: true
{{- end }}
{{- end -}}

{{- define "switchboard.databaseEnv" -}}
{{- include "switchboard.secretEnv" (list "DATABASE_URL" .Values.database.existingSecret .Values.database.key) }}
- name: SWITCHBOARD_DATABASE_CONNECTIONS
  value: {{ .Values.database.connections | quote }}
{{- end -}}

{{- define "switchboard.masterKeyEnv" -}}
{{- include "switchboard.secretEnv" (list "SWITCHBOARD_MASTER_KEY" .Values.masterKey.existingSecret .Values.masterKey.key) }}
{{- end -}}

{{- define "switchboard.objectsEnv" -}}
{{- with .Values.objects }}
{{- if .folder.enabled }}
- name: SWITCHBOARD_OBJECTS
  value: file:///var/lib/switchboard/objects
{{- else if .url }}
- name: SWITCHBOARD_OBJECTS
  value: {{ .url | quote }}
{{- include "switchboard.plainEnv" (list "AWS_REGION" .region) }}
{{- include "switchboard.plainEnv" (list "AWS_ENDPOINT_URL" .endpointUrl) }}
{{- include "switchboard.plainEnv" (list "AWS_ALLOW_HTTP" .allowHttp) }}
{{- include "switchboard.plainEnv" (list "AWS_VIRTUAL_HOSTED_STYLE_REQUEST" .virtualHostedStyle) }}
{{- include "switchboard.secretEnv" (list "AWS_ACCESS_KEY_ID" .existingSecret .accessKeyIdKey) }}
{{- include "switchboard.secretEnv" (list "AWS_SECRET_ACCESS_KEY" .existingSecret .secretAccessKeyKey) }}
{{- end }}
{{- end }}
{{- end -}}

{{- define "switchboard.embeddingsEnv" -}}
{{- with .Values.embeddings }}
{{- if .endpoint }}
{{- include "switchboard.plainEnv" (list "SWITCHBOARD_EMBEDDINGS_ENDPOINT" .endpoint) }}
{{- include "switchboard.plainEnv" (list "SWITCHBOARD_EMBEDDINGS_MODEL" .model) }}
{{- include "switchboard.secretEnv" (list "SWITCHBOARD_EMBEDDINGS_KEY" .existingSecret .key) }}
{{- end }}
{{- end }}
{{- end -}}

{{- /*
The settings file of a service: TOML, whose strings, numbers and booleans are valid JSON.
*/ -}}
{{- define "switchboard.settingsFile" -}}
{{- range $name, $value := . }}
{{ $name }} = {{ toJson $value }}
{{- end }}
{{- end -}}

{{- /*
The language model providers in the format of --completions-file; keys stay in the environment.
*/ -}}
{{- define "switchboard.providersFile" -}}
{{- $listed := list }}
{{- range $index, $given := .Values.completions.providers }}
{{- $entry := dict "name" $given.name "endpoint" $given.endpoint "model" $given.model }}
{{- if $given.existingSecret }}{{ $_ := set $entry "key_env" (printf "COMPLETIONS_KEY_%d" $index) }}{{ end }}
{{- with $given.limitField }}{{ $_ := set $entry "limit_field" . }}{{ end }}
{{- with $given.seesPictures }}{{ $_ := set $entry "sees_pictures" . }}{{ end }}
{{- with $given.prices }}{{ $_ := set $entry "prices" . }}{{ end }}
{{- $listed = append $listed $entry }}
{{- end }}
{{- toPrettyJson $listed }}
{{- end -}}

{{- /*
The speech providers in the format of --speech-file; keys stay in the environment.
*/ -}}
{{- define "switchboard.speechFile" -}}
{{- $file := dict }}
{{- range $kind, $providers := .Values.speech }}
{{- $listed := list }}
{{- range $index, $given := $providers }}
{{- $entry := pick $given "name" "kind" "endpoint" "model" "voice" }}
{{- if $given.existingSecret }}{{ $_ := set $entry "key_env" (printf "%s_KEY_%d" (upper $kind) $index) }}{{ end }}
{{- $listed = append $listed $entry }}
{{- end }}
{{- $_ := set $file $kind $listed }}
{{- end }}
{{- toPrettyJson $file }}
{{- end -}}

{{- /* The environment of edges with speech providers. */ -}}
{{- define "switchboard.speechEnv" }}
{{- if or .Values.speech.stt .Values.speech.tts }}
- name: SWITCHBOARD_SPEECH_FILE
  value: /etc/switchboard/settings/speech.json
{{- range $kind, $providers := .Values.speech }}
{{- range $index, $given := $providers }}
{{- include "switchboard.secretEnv" (list (printf "%s_KEY_%d" (upper $kind) $index) $given.existingSecret ($given.key | default "key")) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
