{{/* The release's own name in front, unless it says what it is already. */}}
{{- define "dtm.prefix" -}}
{{- if ne .Release.Name "device-taint-manager" -}}{{ .Release.Name | trunc 30 | trimSuffix "-" }}-{{- end -}}
{{- end -}}

{{- define "dtm.namespace" -}}{{ .Values.namespaceOverride | default .Release.Namespace }}{{- end -}}

{{- define "dtm.agent" -}}{{ include "dtm.prefix" . }}gpu-driver{{- end -}}
{{- define "dtm.controller" -}}{{ include "dtm.prefix" . }}device-taint-controller{{- end -}}

{{- define "dtm.agentAccount" -}}
{{- if .Values.agent.serviceAccount.create -}}{{ .Values.agent.serviceAccount.name | default (include "dtm.agent" .) }}
{{- else -}}{{ required "agent.serviceAccount.name is needed where agent.serviceAccount.create is false" .Values.agent.serviceAccount.name }}{{- end -}}
{{- end -}}
{{- define "dtm.controllerAccount" -}}
{{- if .Values.controller.serviceAccount.create -}}{{ .Values.controller.serviceAccount.name | default (include "dtm.controller" .) }}
{{- else -}}{{ required "controller.serviceAccount.name is needed where controller.serviceAccount.create is false" .Values.controller.serviceAccount.name }}{{- end -}}
{{- end -}}

{{/* The user names under which the API server sees the two accounts. */}}
{{- define "dtm.agentUser" -}}system:serviceaccount:{{ include "dtm.namespace" . }}:{{ include "dtm.agentAccount" . }}{{- end -}}
{{- define "dtm.controllerUser" -}}system:serviceaccount:{{ include "dtm.namespace" . }}:{{ include "dtm.controllerAccount" . }}{{- end -}}

{{- define "dtm.labels" -}}
app.kubernetes.io/name: device-taint-manager
app.kubernetes.io/instance: {{ .Release.Name }}
app.kubernetes.io/version: {{ .Chart.AppVersion | quote }}
{{- end -}}

{{/* The two kinds of image are for Linux. Arguments: nodeSelector. */}}
{{- define "dtm.nodeSelector" -}}
{{- toYaml (merge (deepCopy .) (dict "kubernetes.io/os" "linux")) -}}
{{- end -}}

{{/* By these a DaemonSet or Deployment finds its pods: never changed, as both refuse that. Arguments: root, component. */}}
{{- define "dtm.selector" -}}
app.kubernetes.io/name: device-taint-manager
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .component }}
{{- end -}}

{{/* Arguments: root, image. */}}
{{- define "dtm.image" -}}
{{- if .image.digest -}}{{ .image.repository }}@{{ .image.digest }}
{{- else -}}{{ .image.repository }}:{{ .image.tag | default .root.Chart.AppVersion }}{{- end -}}
{{- end -}}

{{/* Environment of both programs. Arguments: root, of (the program's values). */}}
{{- define "dtm.env" -}}
{{- with .root.Values.apiServer.host }}
- name: KUBERNETES_SERVICE_HOST
  value: {{ . | quote }}
- name: KUBERNETES_SERVICE_PORT
  value: {{ $.root.Values.apiServer.port | quote }}
{{- end }}
{{- with .of.log.filter }}
- name: RUST_LOG
  value: {{ . | quote }}
{{- end }}
{{- with .of.extraEnv }}
{{ toYaml . }}
{{- end }}
{{- end -}}

{{/*
Probes of both programs. Liveness follows from the main task alone: nothing outside of the process, such as an NVML that hangs or an API server
that is away, has it restarted. Both listen within a second of their start; a node under load gets two minutes.
*/}}
{{- define "dtm.probes" -}}
startupProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 2
  timeoutSeconds: 3
  failureThreshold: 60
livenessProbe:
  httpGet:
    path: /healthz
    port: metrics
  periodSeconds: 10
  timeoutSeconds: 3
  failureThreshold: 6
readinessProbe:
  httpGet:
    path: /readyz
    port: metrics
  periodSeconds: 5
  timeoutSeconds: 3
{{- end -}}

{{/* A list of text as CEL writes it. */}}
{{- define "dtm.celList" -}}{{ . | default list | toJson }}{{- end -}}

{{/* Where the agent looks for NVML: on the node below /host, or in the container. */}}
{{- define "dtm.libraries" -}}
{{- $found := list -}}
{{- range .Values.agent.nvml.libraries -}}
{{- if and $.Values.agent.nvml.hostRoot (hasPrefix "/" .) -}}{{- $found = append $found (print "/host" .) -}}
{{- else -}}{{- $found = append $found . -}}{{- end -}}
{{- end -}}
{{- join "," $found -}}
{{- end -}}
