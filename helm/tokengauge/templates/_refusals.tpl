{{- /* Refuses values that cannot work. */}}
{{- define "tokengauge.refusals" -}}
{{- include "tokengauge.refusals.both" . }}
{{- if eq .Values.mode "gateway" }}
{{- include "tokengauge.refusals.gateway" . }}
{{- include "tokengauge.refusals.scale" .Values.gateway }}
{{- include "tokengauge.refusals.service" . }}
{{- else }}
{{- include "tokengauge.refusals.sidecar" . }}
{{- end }}
{{- end }}

{{- /* Refuses duplicate names: dict "what", "names". */}}
{{- define "tokengauge.unique" -}}
{{- $seen := list }}
{{- range .names }}
{{- if has . $seen }}{{ include "tokengauge.refuse" (printf "%s has %q twice" $.what .) }}{{ end }}
{{- $seen = append $seen . }}
{{- end }}
{{- end }}

{{- define "tokengauge.refusals.both" -}}
{{- $name := include "tokengauge.fullname" . }}
{{- if not (regexMatch "^[a-z]([-a-z0-9]*[a-z0-9])?$" $name) }}{{ include "tokengauge.refuse" (printf "%q cannot be the name of a Service, which has lower-case letters, digits and hyphens and begins with a letter: set fullnameOverride" $name) }}{{ end }}
{{- $names := list }}
{{- range .Values.env }}{{ $names = append $names .name }}{{ end }}
{{- include "tokengauge.unique" (dict "what" "env" "names" $names) }}
{{- with .Values.serviceAccount }}
{{- if and .annotations (not .create) }}{{ include "tokengauge.refuse" "serviceAccount.annotations apply only to the account that serviceAccount.create=true creates: annotate your account yourself" }}{{ end }}
{{- end }}
{{- if and .Values.admin.metricsToken (not .Values.admin.tokenSecret.name) }}{{ include "tokengauge.refuse" "admin.metricsToken needs a token: name its Secret in admin.tokenSecret.name" }}{{ end }}
{{- $part := ternary .Values.gateway .Values.sidecar.injector (eq .Values.mode "gateway") }}
{{- $names = ternary (list "tokengauge") (list "injector") (eq .Values.mode "gateway") }}
{{- range concat $part.initContainers $part.extraContainers }}{{ $names = append $names .name }}{{ end }}
{{- include "tokengauge.unique" (dict "what" "The pod, with initContainers and extraContainers," "names" $names) }}
{{- range $part.extraArgs }}
{{- if regexMatch "^--?(l|listen|admin|config|c|certificate|key)(=|$)" . }}{{ include "tokengauge.refuse" (printf "extraArgs: the chart sets %s itself" .) }}{{ end }}
{{- end }}
{{- end }}

{{- define "tokengauge.refusals.gateway" -}}
{{- if and .Values.existingConfigMap .Values.config }}{{ include "tokengauge.refuse" "config and existingConfigMap cannot both be set: keep the configuration in one of the two" }}{{ end }}
{{- if and .Values.admin.scheme (not .Values.existingConfigMap) }}{{ include "tokengauge.refuse" "admin.scheme works only with existingConfigMap: without it, [admin.tls] of the configuration decides" }}{{ end }}
{{- $vault := dig "vault.hashicorp.com/agent-inject" "" .Values.gateway.podAnnotations | lower }}
{{- if and .Values.check.enabled (or .Values.gateway.initContainers (has $vault (list "true" "t" "1"))) }}{{ include "tokengauge.refuse" "set check.enabled=false: the check cannot read files that gateway.initContainers or vault.hashicorp.com/agent-inject create in the pod" }}{{ end }}
{{- $names := list "/var/lib/tokengauge" "/etc/tokengauge/config" }}
{{- if .Values.tls.enabled }}{{ $names = append $names "/etc/tokengauge/tls" }}{{ end }}
{{- if and .Values.tls.enabled .Values.tls.clientCaSecret }}{{ $names = append $names "/etc/tokengauge/tls-clients" }}{{ end }}
{{- if .Values.admin.tokenSecret.name }}{{ $names = append $names "/etc/tokengauge/admin" }}{{ end }}
{{- range .Values.secrets }}{{ $names = append $names (default (printf "/etc/tokengauge/secrets/%s" .name) .path | clean) }}{{ end }}
{{- range .Values.gateway.extraVolumeMounts }}{{ $names = append $names (clean .mountPath) }}{{ end }}
{{- include "tokengauge.unique" (dict "what" "The gateway, with the chart's own folders, secrets and extraVolumeMounts," "names" $names) }}
{{- $names = list "state" "config" "tls" "tls-clients" "admin-token" }}
{{- range $at, $_ := .Values.secrets }}{{ $names = append $names (printf "secret-%d" $at) }}{{ end }}
{{- range .Values.gateway.extraVolumes }}{{ $names = append $names .name }}{{ end }}
{{- include "tokengauge.unique" (dict "what" "The gateway's pod, with extraVolumes," "names" $names) }}
{{- if not .Values.existingConfigMap }}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- if dig "admin" "tls" "client_ca" "" $tables }}
{{- range $name := list "readinessProbe" "livenessProbe" }}
{{- $probe := get $.Values.gateway $name }}
{{- if or (not $probe) $probe.httpGet }}
{{- include "tokengauge.refuse" (printf "[admin.tls] has client_ca, but the kubelet has no client certificate: set gateway.%s, for example to { tcpSocket: { port: admin } }" $name) }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}
{{- end }}

{{- define "tokengauge.refusals.scale" -}}
{{- $most := .replicas }}
{{- with .autoscaling }}
{{- if .enabled }}
{{- $most = .maxReplicas }}
{{- if gt (int .minReplicas) (int .maxReplicas) }}{{ include "tokengauge.refuse" (printf "gateway.autoscaling: minReplicas, %d, is higher than maxReplicas, %d" (int .minReplicas) (int .maxReplicas)) }}{{ end }}
{{- if not (or .streamsPerPod .cpuPercent .metrics) }}{{ include "tokengauge.refuse" "gateway.autoscaling has no metric to scale by: set streamsPerPod, cpuPercent or metrics" }}{{ end }}
{{- if and .cpuPercent (not (dig "requests" "cpu" "" $.resources)) }}{{ include "tokengauge.refuse" "gateway.autoscaling.cpuPercent is a share of the requested CPU: set gateway.resources.requests.cpu" }}{{ end }}
{{- end }}
{{- end }}
{{- if and .state.existingClaim (gt (int $most) 1) }}
{{- include "tokengauge.refuse" (printf "only one process at a time can use gateway.state.existingClaim, but there may be %d replicas: set gateway.replicas to 1 and disable autoscaling, or remove the claim" (int $most)) }}
{{- end }}
{{- end }}

{{- define "tokengauge.refusals.service" -}}
{{- with .Values.gateway.service }}
{{- $inside := eq .type "ClusterIP" }}
{{- range $key := list "nodePort" "externalTrafficPolicy" }}
{{- if and $inside (get $.Values.gateway.service $key) }}{{ include "tokengauge.refuse" (printf "gateway.service.%s works only with the types NodePort and LoadBalancer" $key) }}{{ end }}
{{- end }}
{{- if and .loadBalancerClass (ne .type "LoadBalancer") }}{{ include "tokengauge.refuse" "gateway.service.loadBalancerClass works only with the type LoadBalancer" }}{{ end }}
{{- if and (gt (len .ipFamilies) 1) (eq .ipFamilyPolicy "SingleStack") }}{{ include "tokengauge.refuse" "gateway.service.ipFamilies has two families, but ipFamilyPolicy is SingleStack" }}{{ end }}
{{- if and .trafficDistribution (not (semverCompare ">=1.31-0" (include "tokengauge.kube" $))) }}{{ include "tokengauge.refuse" "gateway.service.trafficDistribution needs Kubernetes 1.31" }}{{ end }}
{{- if and (hasPrefix "PreferSame" .trafficDistribution) (not (semverCompare ">=1.34-0" (include "tokengauge.kube" $))) }}{{ include "tokengauge.refuse" (printf "gateway.service.trafficDistribution: %s needs Kubernetes 1.34" .trafficDistribution) }}{{ end }}
{{- end }}
{{- end }}

{{- define "tokengauge.refusals.sidecar" -}}
{{- if .Values.existingConfigMap }}{{ include "tokengauge.refuse" "existingConfigMap works only in mode gateway: set `config`, which the chart writes to the ConfigMap that sidecars read in their own namespace" }}{{ end }}
{{- with .Values.sidecar.webhook }}
{{- if and (eq .failurePolicy "Fail") (not (or $.Values.sidecar.namespaces .namespaceSelector .objectSelector)) (not (semverCompare ">=1.30-0" (include "tokengauge.kube" $))) }}{{ include "tokengauge.refuse" "sidecar.webhook.failurePolicy=Fail before Kubernetes 1.30 needs sidecar.namespaces: without it, no pod of the cluster would start while the injector does not answer" }}{{ end }}
{{- end }}
{{- $ports := list }}
{{- range $_, $port := .Values.sidecar.ports }}{{ $ports = append $ports (int $port | toString) }}{{ end }}
{{- include "tokengauge.unique" (dict "what" "sidecar.ports" "names" $ports) }}
{{- with .Values.networkPolicy.sidecars }}
{{- if .enabled }}
{{- if not (or .namespaces $.Values.sidecar.namespaces) }}{{ include "tokengauge.refuse" "networkPolicy.sidecars: a NetworkPolicy applies to one namespace. List the namespaces with sidecars in networkPolicy.sidecars.namespaces or sidecar.namespaces" }}{{ end }}
{{- if not .otherPorts }}{{ include "tokengauge.refuse" "set networkPolicy.sidecars.otherPorts: open if no other policy selects these pods, closed if other policies control access to their other ports" }}{{ end }}
{{- end }}
{{- end }}
{{- end }}
