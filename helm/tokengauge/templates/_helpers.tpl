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
app.kubernetes.io/name: {{ include "tokengauge.name" .root | quote }}
app.kubernetes.io/instance: {{ .root.Release.Name | quote }}
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

{{- /* Of pods that end by themselves: no mesh puts a sidecar into them, which might not end. */}}
{{- define "tokengauge.noSidecar.labels" -}}
sidecar.istio.io/inject: "false"
kuma.io/sidecar-injection: disabled
{{- end }}

{{- define "tokengauge.noSidecar.annotations" -}}
tokengauge.dev/inject: "false"
linkerd.io/inject: disabled
consul.hashicorp.com/connect-inject: "false"
{{- end }}

{{- /* The version of Kubernetes to render for. */}}
{{- define "tokengauge.kube" -}}
{{- default .Capabilities.KubeVersion.Version .Values.kubeVersion }}
{{- end }}

{{- /* With global.imageRegistry in place of the registry that the repository names, if it names one. */}}
{{- define "tokengauge.image" -}}
{{- $repository := .Values.image.repository }}
{{- with .Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") }}
{{- end }}
{{- with .Values.image }}
{{- if .digest }}{{ $repository }}@{{ .digest }}{{ else }}{{ $repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* imagePullSecrets and global.imagePullSecrets, whose entries may also be plain names: a JSON list of names. */}}
{{- define "tokengauge.pullSecrets" -}}
{{- $names := list }}
{{- range concat .Values.imagePullSecrets .Values.global.imagePullSecrets }}
{{- $names = append $names (kindIs "string" . | ternary . (get (kindIs "map" . | ternary . dict) "name")) }}
{{- end }}
{{- uniq $names | toJson }}
{{- end }}

{{- define "tokengauge.serviceAccount" -}}
{{- with .Values.serviceAccount }}
{{- if .create }}{{ default (include "tokengauge.fullname" $) .name }}{{ else }}{{ default "default" .name }}{{ end }}
{{- end }}
{{- end }}

{{- /* What pods share that no part has an opinion on: dict "root", "at" (the values of the part). */}}
{{- define "tokengauge.podBasics" -}}
automountServiceAccountToken: false
enableServiceLinks: false
{{- with .root.Values.podSecurityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- with include "tokengauge.pullSecrets" .root | fromJsonArray }}
imagePullSecrets:
  {{- range . }}
  - name: {{ . | quote }}
  {{- end }}
{{- end }}
{{- range $key := list "priorityClassName" "runtimeClassName" "schedulerName" }}
{{- with get $.at $key }}
{{ $key }}: {{ . | quote }}
{{- end }}
{{- end }}
{{- range $key := list "nodeSelector" "tolerations" }}
{{- with get $.at $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- /* How its containers find names. */}}
{{- define "tokengauge.dns" -}}
{{- with .dnsPolicy }}
dnsPolicy: {{ . }}
{{- end }}
{{- range $key := list "dnsConfig" "hostAliases" }}
{{- with get $ $key }}
{{ $key }}:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tokengauge.containerSecurity" -}}
{{- with .Values.securityContext }}
securityContext:
  {{- toYaml . | nindent 2 }}
{{- end }}
{{- end }}

{{- /* The variables of `known`, but for those that `env` of the values has, and then these: dict "root", "known" (a YAML list). */}}
{{- define "tokengauge.env" -}}
{{- $own := list }}
{{- range .root.Values.env }}{{ $own = append $own .name }}{{ end }}
{{- range fromYamlArray .known }}
{{- if not (has .name $own) }}
- {{ toJson . }}
{{- end }}
{{- end }}
{{- with .root.Values.env }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* For `ipFamilies` and `ipFamilyPolicy` of a Service's values. */}}
{{- define "tokengauge.ipFamilies" -}}
{{- with .ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .ipFamilies }}
ipFamilies: [{{ join ", " . }}]
{{- end }}
{{- end }}

{{- /* Where pods go, as far as that is said: dict "root", "at" (the values), "part". */}}
{{- define "tokengauge.placement" -}}
{{- include "tokengauge.podBasics" . }}
serviceAccountName: {{ include "tokengauge.serviceAccount" .root | quote }}
{{- include "tokengauge.dns" .at }}
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
  name: {{ .name | quote }}
  namespace: {{ .root.Release.Namespace | quote }}
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
