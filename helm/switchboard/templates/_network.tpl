{{- /* Rules of network policies. Invariant: every rule has ports. */ -}}

{{- /* Takes {to, ports}: an egress rule for TCP. */ -}}
{{- define "switchboard.egress" -}}
- ports:
    {{- range .ports }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- define "switchboard.egress.dns" -}}
- ports:
    {{- range .Values.networkPolicy.dns.ports }}
    - {protocol: UDP, port: {{ . }}}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with .Values.networkPolicy.dns.to }}
  to:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /* Takes (list PORTS PEERS): an ingress rule for TCP; from any address without peers. */ -}}
{{- define "switchboard.ingress" -}}
- ports:
    {{- range index . 0 }}
    - {protocol: TCP, port: {{ . }}}
    {{- end }}
  {{- with index . 1 }}
  from:
    {{- toYaml . | nindent 4 }}
  {{- end }}
{{- end -}}

{{- /*
Takes (dict "root" $ "name" VALUE "url" URL "rule" "objects"): rejects a policy that blocks an
address in another value.
*/ -}}
{{- define "switchboard.checkPort" -}}
{{- if .url }}
{{- $url := urlParse .url }}
{{- $port := regexFind ":[0-9]+$" $url.host | trimPrefix ":" | default (ternary "80" "443" (eq $url.scheme "http")) | int }}
{{- $open := index .root.Values.networkPolicy .rule "ports" }}
{{- range .root.Values.networkPolicy.extraEgress }}
{{- if not .ports }}{{ $open = append $open $port }}{{ end }}
{{- range .ports }}
{{- $open = append $open .port }}
{{- if and .endPort (le (int .port) $port) (ge (int .endPort) $port) }}{{ $open = append $open $port }}{{ end }}
{{- end }}
{{- end }}
{{- $numbers := list }}
{{- range $open }}{{ $numbers = append $numbers (int .) }}{{ end }}
{{- if not (has $port $numbers) }}
{{- fail (printf "%s is at port %d, which networkPolicy.%s.ports does not open: add it there" .name $port .rule) }}
{{- end }}
{{- end }}
{{- end -}}

{{- /* Takes the root: all addresses in values. Addresses in secrets are not visible here. */ -}}
{{- define "switchboard.checkPorts" -}}
{{- $values := .Values }}
{{- if not $values.objects.folder.enabled }}
{{- $bucket := ternary ($values.objects.endpointUrl | default "https://s3") "" (not (empty $values.objects.url)) }}
{{- include "switchboard.checkPort" (dict "root" $ "name" "objects.endpointUrl" "url" $bucket "rule" "objects") }}
{{- end }}
{{- include "switchboard.checkPort" (dict "root" $ "name" "embeddings.endpoint" "url" $values.embeddings.endpoint "rule" "providers") }}
{{- include "switchboard.checkPort" (dict "root" $ "name" "voices.endpoint" "url" $values.voices.endpoint "rule" "providers") }}
{{- include "switchboard.checkPort" (dict "root" $ "name" "voices.openai.endpoint" "url" $values.voices.openai.endpoint "rule" "providers") }}
{{- range $index, $given := $values.completions.providers }}
{{- include "switchboard.checkPort" (dict "root" $ "name" (printf "completions.providers[%d].endpoint" $index) "url" $given.endpoint "rule" "providers") }}
{{- end }}
{{- range $kind, $providers := $values.speech }}
{{- range $index, $given := $providers }}
{{- $url := ternary (printf "tcp://%s" $given.endpoint) $given.endpoint (eq $given.kind "wyoming") }}
{{- include "switchboard.checkPort" (dict "root" $ "name" (printf "speech.%s[%d].endpoint" $kind $index) "url" $url "rule" "providers") }}
{{- end }}
{{- end }}
{{- include "switchboard.checkPort" (dict "root" $ "name" "telemetry.otlpEndpoint" "url" $values.telemetry.otlpEndpoint "rule" "telemetry") }}
{{- end -}}
