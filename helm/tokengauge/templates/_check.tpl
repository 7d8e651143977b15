{{- define "tokengauge.check.name" -}}
{{ include "tokengauge.fullname" . }}-check
{{- end }}

{{- /* cert-manager creates the certificate from an object of this release, so it may not exist yet. */}}
{{- define "tokengauge.check.later" -}}
{{- with .Values }}
{{- if and (eq .mode "gateway") .tls.enabled .tls.certManager.enabled (not .tls.existingSecret) }}true{{ end }}
{{- end }}
{{- end }}

{{- /* The files that the check reads. */}}
{{- define "tokengauge.check.data" -}}
{{- if eq .Values.mode "sidecar" }}
injector.toml: |2
  {{- include "tokengauge.injectorConfig" . | nindent 2 }}
nothing.yaml: ""
{{- end }}
proxy-config.toml: |2
  {{- if include "tokengauge.check.later" . }}
  {{- include "tokengauge.config.withoutTls" . | nindent 2 }}
  {{- else }}
  {{- include "tokengauge.config.text" . | nindent 2 }}
  {{- end }}
{{- end }}

{{- /* The spec of the check's Job. */}}
{{- define "tokengauge.check.spec" -}}
{{- $gateway := eq .Values.mode "gateway" }}
{{- $part := ternary .Values.gateway .Values.sidecar.injector $gateway }}
{{- $selector := dict "root" . "part" "check" }}
{{- $later := include "tokengauge.check.later" . }}
activeDeadlineSeconds: {{ .Values.check.timeoutSeconds }}
# Deletes the Job after a day if no hook does, or if it failed and no later Job has its name.
ttlSecondsAfterFinished: 86400
backoffLimit: 2
{{- if semverCompare ">=1.29-0" (include "tokengauge.kube" .) }}
{{- /* The schema of 1.28 also requires `onPodConditions`. */}}
# An invalid configuration stays invalid, so the Job does not retry.
podFailurePolicy:
  rules:
    - action: FailJob
      onExitCodes: { operator: NotIn, values: [0] }
{{- end }}
template:
  metadata:
    labels:
      {{- include "tokengauge.podLabels" $selector | nindent 6 }}
      {{- include "tokengauge.noSidecar.labels" . | nindent 6 }}
      {{- with omit $part.podLabels "sidecar.istio.io/inject" "kuma.io/sidecar-injection" }}
      {{- toYaml . | nindent 6 }}
      {{- end }}
    annotations:
      {{- include "tokengauge.noSidecar.annotations" . | nindent 6 }}
  spec:
    restartPolicy: Never
    # The service account of the release does not exist yet.
    serviceAccountName: {{ .Values.serviceAccount.create | ternary "default" (include "tokengauge.serviceAccount" .) | quote }}
    {{- include "tokengauge.podBasics" (dict "root" . "at" $part) | nindent 4 }}
    containers:
      - name: check
        image: {{ include "tokengauge.image" . | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        args: [check, --config=/etc/tokengauge/config/proxy-config.toml]
        env:
          {{- if $gateway }}
          {{- include "tokengauge.env" (dict "root" . "known" (include "tokengauge.gateway.env" .)) | nindent 10 }}
          {{- else }}
          - { name: TOKENGAUGE_LOG, value: {{ .Values.logLevel | quote }} }
          {{- with .Values.admin.tokenSecret }}
          {{- if .name }}
          - { name: TOKENGAUGE_ADMIN_TOKEN, valueFrom: { secretKeyRef: { name: {{ .name | quote }}, key: {{ .key | quote }}, optional: true } } }
          {{- end }}
          {{- end }}
          {{- end }}
        {{- if $gateway }}
        {{- with .Values.envFrom }}
        envFrom:
          {{- toYaml . | nindent 10 }}
        {{- end }}
        {{- end }}
        resources:
          {{- toYaml .Values.check.resources | nindent 10 }}
        {{- include "tokengauge.containerSecurity" . | nindent 8 }}
        volumeMounts:
          {{- if $gateway }}
          {{- include "tokengauge.gateway.mounts" (dict "root" . "claims" false) | nindent 10 }}
          {{- else }}
          - { name: state, mountPath: /var/lib/tokengauge }
          - { name: config, mountPath: /etc/tokengauge/config, readOnly: true }
      - name: injector
        image: {{ include "tokengauge.image" . | quote }}
        imagePullPolicy: {{ .Values.image.pullPolicy }}
        # The file is empty: the command only reads the injector's configuration.
        args: [inject, --config=/etc/tokengauge/injector/injector.toml, --file=/etc/tokengauge/injector/nothing.yaml]
        resources:
          {{- toYaml .Values.check.resources | nindent 10 }}
        {{- include "tokengauge.containerSecurity" . | nindent 8 }}
        volumeMounts:
          - { name: config, mountPath: /etc/tokengauge/injector, readOnly: true }
          {{- end }}
    volumes:
      # For `state_dir`. Only the process that keeps its state may write to the real volume.
      - { name: state, emptyDir: { sizeLimit: 16Mi } }
      - name: config
        configMap: { name: {{ default (include "tokengauge.check.name" .) .Values.existingConfigMap | quote }} }
      {{- if $gateway }}
      {{- include "tokengauge.gateway.volumes" (dict "root" . "certificate" (not $later) "claims" false) | nindent 6 }}
      {{- end }}
{{- end }}
