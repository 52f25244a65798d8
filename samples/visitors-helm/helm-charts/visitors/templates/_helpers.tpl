{{/* Labels of a tier of the site: a list of the root and the name of the tier. */}}
{{- define "visitors.labels" -}}
app: visitors
site: {{ (index . 0).Release.Name }}
tier: {{ index . 1 }}
{{- end }}
