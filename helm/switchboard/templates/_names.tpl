{{- /*
Names, labels and the image. Invariant: no label that selects pods changes with the version.
*/ -}}

{{- define "switchboard.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 40 | trimSuffix "-" -}}
{{- end -}}

{{- define "switchboard.fullname" -}}
{{- if .Values.fullnameOverride -}}
{{- .Values.fullnameOverride | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- $name := include "switchboard.name" . -}}
{{- if contains $name .Release.Name -}}
{{- .Release.Name | trunc 40 | trimSuffix "-" -}}
{{- else -}}
{{- printf "%s-%s" .Release.Name $name | trunc 40 | trimSuffix "-" -}}
{{- end -}}
{{- end -}}
{{- end -}}

{{- /* Takes (dict "root" $ "component" "edge"). */ -}}
{{- define "switchboard.selectorLabels" -}}
app.kubernetes.io/name: {{ include "switchboard.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
{{- with .component }}
app.kubernetes.io/component: {{ . }}
{{- end }}
{{- end -}}

{{- /* Takes the same; without a component for objects shared by all. */ -}}
{{- define "switchboard.labels" -}}
{{ include "switchboard.selectorLabels" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/part-of: switchboard
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" }}
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{- /*
Labels of pods: none changes with the chart alone, because that would restart pods and move devices.
Takes the same, and "settings" of a service.
*/ -}}
{{- define "switchboard.podLabels" -}}
{{ include "switchboard.selectorLabels" . }}
app.kubernetes.io/part-of: switchboard
{{- with .root.Values.commonLabels }}
{{ toYaml . }}
{{- end }}
{{- with .settings }}
{{- with .podLabels }}
{{ toYaml . }}
{{- end }}
{{- end }}
{{- end -}}

{{- /*
The address of the runbook ${1} in alerts. By default the gateway serves it: at its first public name, else at the name of its
Service.
*/ -}}
{{- define "switchboard.runbook" -}}
{{- $values := .Values -}}
{{- if $values.prometheusRule.runbookBase -}}
{{- printf "%sdocs/runbooks/${1}.md" $values.prometheusRule.runbookBase -}}
{{- else if and $values.ingress.enabled $values.ingress.hosts -}}
{{- printf "%s://%s/runbooks/${1}" (ternary "https" "http" (not (empty $values.ingress.tls))) (first $values.ingress.hosts) -}}
{{- else if and $values.httpRoute.enabled $values.httpRoute.hostnames -}}
{{- printf "https://%s/runbooks/${1}" (first $values.httpRoute.hostnames) -}}
{{- else -}}
{{- printf "http://%s-gateway.%s.svc:%v/runbooks/${1}" (include "switchboard.fullname" .) .Release.Namespace $values.gateway.service.port -}}
{{- end -}}
{{- end -}}

{{- define "switchboard.image" -}}
{{- if .Values.image.digest -}}
{{ .Values.image.repository }}@{{ .Values.image.digest }}
{{- else -}}
{{ .Values.image.repository }}:{{ .Values.image.tag | default .Chart.AppVersion }}
{{- end -}}
{{- end -}}

{{- define "switchboard.serviceAccountName" -}}
{{- if .Values.serviceAccount.create -}}
{{ .Values.serviceAccount.name | default (include "switchboard.fullname" .) }}
{{- else -}}
{{ .Values.serviceAccount.name | default "default" }}
{{- end -}}
{{- end -}}

{{- define "switchboard.objectsClaim" -}}
{{ .Values.objects.folder.existingClaim | default (printf "%s-objects" (include "switchboard.fullname" .)) }}
{{- end -}}
