{{- /* Variables that tell a gateway where it runs. */}}
{{- define "tokengauge.gateway.env" -}}
- { name: TOKENGAUGE_LOG, value: {{ .Values.logLevel | quote }} }
- { name: K8S_POD_NAME, valueFrom: { fieldRef: { fieldPath: metadata.name } } }
- { name: K8S_NAMESPACE_NAME, valueFrom: { fieldRef: { fieldPath: metadata.namespace } } }
- { name: K8S_NODE_NAME, valueFrom: { fieldRef: { fieldPath: spec.nodeName } } }
- { name: K8S_DEPLOYMENT_NAME, value: {{ include "tokengauge.fullname" . | quote }} }
{{- end }}

{{- define "tokengauge.gateway.readiness" -}}
{{- if .Values.gateway.readinessProbe }}
{{- toYaml .Values.gateway.readinessProbe }}
{{- else }}
httpGet: { path: /readyz, port: admin, scheme: {{ include "tokengauge.adminScheme" . | upper }} }
periodSeconds: 5
{{- end }}
{{- end }}

{{- define "tokengauge.gateway.liveness" -}}
{{- if .Values.gateway.livenessProbe }}
{{- toYaml .Values.gateway.livenessProbe }}
{{- else }}
httpGet: { path: /livez, port: admin, scheme: {{ include "tokengauge.adminScheme" . | upper }} }
periodSeconds: 10
timeoutSeconds: 5
{{- end }}
{{- end }}

{{- /* The mounts of the configuration's files, for the gateway and for its check, which must not mount claims:
dict "root", "claims". */}}
{{- define "tokengauge.gateway.mounts" -}}
{{- $values := .root.Values -}}
- { name: state, mountPath: /var/lib/tokengauge }
- { name: config, mountPath: /etc/tokengauge/config, readOnly: true }
{{- if $values.tls.enabled }}
- { name: tls, mountPath: /etc/tokengauge/tls, readOnly: true }
{{- if $values.tls.clientCaSecret }}
- { name: tls-clients, mountPath: /etc/tokengauge/tls-clients, readOnly: true }
{{- end }}
{{- end }}
{{- if $values.admin.tokenSecret.name }}
- { name: admin-token, mountPath: /etc/tokengauge/admin, readOnly: true }
{{- end }}
{{- range $at, $secret := $values.secrets }}
- { name: secret-{{ $at }}, mountPath: {{ default (printf "/etc/tokengauge/secrets/%s" $secret.name) $secret.path | quote }}, readOnly: true }
{{- end }}
{{- $left := list }}
{{- range $values.gateway.extraVolumes }}
{{- if and .persistentVolumeClaim (not $.claims) }}{{ $left = append $left .name }}{{ end }}
{{- end }}
{{- range $values.gateway.extraVolumeMounts }}
{{- if not (has .name $left) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}

{{- /* The volumes of these mounts, except the configuration itself: dict "root", "certificate" (false: an empty folder
instead of the certificate for agents), "claims". */}}
{{- define "tokengauge.gateway.volumes" -}}
{{- $values := .root.Values }}
{{- if $values.tls.enabled }}
- name: tls
  {{- if .certificate }}
  secret: { secretName: {{ include "tokengauge.tlsSecret" .root | quote }}, defaultMode: 0440 }
  {{- else }}
  emptyDir: { sizeLimit: 1Mi }
  {{- end }}
{{- if $values.tls.clientCaSecret }}
- name: tls-clients
  secret: { secretName: {{ $values.tls.clientCaSecret | quote }}, defaultMode: 0440 }
{{- end }}
{{- end }}
{{- if $values.admin.tokenSecret.name }}
- name: admin-token
  secret: { secretName: {{ $values.admin.tokenSecret.name | quote }}, defaultMode: 0440 }
{{- end }}
{{- range $at, $secret := $values.secrets }}
- name: secret-{{ $at }}
  secret: { secretName: {{ $secret.name | quote }}, defaultMode: 0440 }
{{- end }}
{{- range $values.gateway.extraVolumes }}
{{- if or $.claims (not .persistentVolumeClaim) }}
- {{ toYaml . | nindent 2 | trim }}
{{- end }}
{{- end }}
{{- end }}
