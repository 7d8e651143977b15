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

{{- /* Selector labels of a part's pods, which must not change after the installation. */}}
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

{{- /* Without versions, so that a new chart version restarts no pod. */}}
{{- define "tokengauge.podLabels" -}}
{{- include "tokengauge.selector" . }}
{{- with .root.Values.labels }}
{{ toYaml . }}
{{- end }}
{{- end }}

{{- /* For pods that end by themselves: a mesh must not inject a sidecar, which might not end. */}}
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

{{- /* global.imageRegistry replaces the registry in the repository, or is added. */}}
{{- define "tokengauge.image" -}}
{{- $repository := .Values.image.repository }}
{{- with .Values.global.imageRegistry }}
{{- $repository = printf "%s/%s" (trimSuffix "/" .) (regexReplaceAll "^([^/]*[.:][^/]*|localhost)/" $repository "") }}
{{- end }}
{{- with .Values.image }}
{{- if .digest }}{{ $repository }}@{{ .digest }}{{ else }}{{ $repository }}:{{ default $.Chart.AppVersion .tag }}{{ end }}
{{- end }}
{{- end }}

{{- /* A JSON list of the names in imagePullSecrets and global.imagePullSecrets, whose entries may also be plain names. */}}
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

{{- /* Common fields of all pods: dict "root", "at" (the values of the part). */}}
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

{{- /* DNS settings of the pod. */}}
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

{{- /* The variables of `known` that `env` does not override, followed by `env`: dict "root", "known" (a YAML list). */}}
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

{{- /* `ipFamilies` and `ipFamilyPolicy` of a Service. */}}
{{- define "tokengauge.ipFamilies" -}}
{{- with .ipFamilyPolicy }}
ipFamilyPolicy: {{ . }}
{{- end }}
{{- with .ipFamilies }}
ipFamilies: [{{ join ", " . }}]
{{- end }}
{{- end }}

{{- /* Scheduling of pods: dict "root", "at" (the values), "part". */}}
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
  # An unready pod has no traffic, so a drain of its node need not wait for it.
  unhealthyPodEvictionPolicy: AlwaysAllow
  {{- end }}
  selector:
    matchLabels:
      {{- include "tokengauge.selector" . | nindent 6 }}
{{- end }}

{{- /* Fails the rendering with a reason. */}}
{{- define "tokengauge.refuse" -}}
{{- fail (printf "\n\n%s\n" .) }}
{{- end }}
