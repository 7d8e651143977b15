{{- define "tokengauge.name" -}}
{{- default .Chart.Name .Values.nameOverride | trunc 63 | trimSuffix "-" }}
{{- end }}

{{- define "tokengauge.fullname" -}}
{{- if .Values.fullnameOverride }}
{{- .Values.fullnameOverride | trunc 52 | trimSuffix "-" }}
{{- else if contains (include "tokengauge.name" .) .Release.Name }}
{{- .Release.Name | trunc 52 | trimSuffix "-" }}
{{- else }}
{{- printf "%s-%s" .Release.Name (include "tokengauge.name" .) | trunc 52 | trimSuffix "-" }}
{{- end }}
{{- end }}

{{- define "tokengauge.injector" -}}
{{ include "tokengauge.fullname" . }}-injector
{{- end }}

{{- /* What tells the pods of a part: never changed after the installation. */}}
{{- define "tokengauge.selector" -}}
app.kubernetes.io/name: {{ include "tokengauge.name" .root }}
app.kubernetes.io/instance: {{ .root.Release.Name }}
app.kubernetes.io/component: {{ .part }}
{{- end }}

{{- define "tokengauge.labels" -}}
helm.sh/chart: {{ printf "%s-%s" .root.Chart.Name .root.Chart.Version | replace "+" "_" | trunc 63 | trimSuffix "-" }}
{{ include "tokengauge.selector" . }}
app.kubernetes.io/version: {{ .root.Chart.AppVersion | quote }}
app.kubernetes.io/managed-by: {{ .root.Release.Service }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* Without the versions: a new one of the chart alone restarts nothing. */}}
{{- define "tokengauge.podLabels" -}}
{{- include "tokengauge.selector" . }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* The version of Kubernetes to render for. */}}
{{- define "tokengauge.kube" -}}
{{- default .Capabilities.KubeVersion.Version .Values.kubeVersion }}
{{- end }}

{{- define "tokengauge.image" -}}
{{- with .Values.image }}
{{- if .digest }}{{ .repository }}@{{ .digest }}{{ else }}{{ .repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* "restricted" of the Pod Security Standards, and a root that cannot be written to. */}}
{{- define "tokengauge.podSecurity" -}}
runAsNonRoot: true
runAsUser: 65532
runAsGroup: 65532
fsGroup: 65532
fsGroupChangePolicy: OnRootMismatch
seccompProfile: { type: RuntimeDefault }
{{- end }}

{{- define "tokengauge.containerSecurity" -}}
allowPrivilegeEscalation: false
readOnlyRootFilesystem: true
capabilities: { drop: [ALL] }
{{- end }}

{{- /* Where pods go, as far as that is said: dict "root", "at" (the values), "part". */}}
{{- define "tokengauge.placement" -}}
{{- with .root.Values.imagePullSecrets }}
imagePullSecrets:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.priorityClassName }}
priorityClassName: {{ . }}
{{- end }}
{{- with .at.nodeSelector }}
nodeSelector:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.tolerations }}
tolerations:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with .at.affinity }}
affinity:
  {{- toYaml . | nindent 2 }}
{{- end }}
topologySpreadConstraints:
{{- if .at.topologySpreadConstraints }}
  {{- toYaml .at.topologySpreadConstraints | nindent 2 }}
{{- else }}
{{- range $key := list "topology.kubernetes.io/zone" "kubernetes.io/hostname" }}
  - topologyKey: {{ $key }}
    maxSkew: 1
    whenUnsatisfiable: ScheduleAnyway
    labelSelector:
      matchLabels:
        {{- include "tokengauge.selector" $ | nindent 8 }}
    {{- if semverCompare ">=1.27-0" (include "tokengauge.kube" $.root) }}
    matchLabelKeys: [pod-template-hash]
    {{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tokengauge.disruptionBudget" -}}
apiVersion: policy/v1
kind: PodDisruptionBudget
metadata:
  name: {{ .name }}
  namespace: {{ .root.Release.Namespace }}
  labels:
    {{- include "tokengauge.labels" . | nindent 4 }}
spec:
  maxUnavailable: {{ .at.podDisruptionBudget.maxUnavailable }}
  {{- if semverCompare ">=1.27-0" (include "tokengauge.kube" .root) }}
  # A pod that is not ready serves nobody: nodes need not wait for it.
  unhealthyPodEvictionPolicy: AlwaysAllow
  {{- end }}
  selector:
    matchLabels:
      {{- include "tokengauge.selector" . | nindent 6 }}
{{- end }}

{{- /* Ends the rendering with a reason. */}}
{{- define "tokengauge.refuse" -}}
{{- fail (printf "\n\n%s\n" .) }}
{{- end }}
