{{- /* The configuration's text as given, or the proxy's example if there is none. */}}
{{- define "tokengauge.config.written" -}}
{{- default (.Files.Get "files/proxy-config.toml") .Values.config }}
{{- end }}

{{- /* Puts the tables of the proxy's configuration into .into: dict "root", "into". An include could only return a text,
and JSON would convert integers to fractions. */}}
{{- define "tokengauge.config.tables" -}}
{{- $values := .root.Values }}
{{- $tables := dict }}
{{- if or (not $values.config) (kindIs "string" $values.config) }}
{{- $tables = fromToml (include "tokengauge.config.written" .root) }}
{{- with $tables.Error }}{{ include "tokengauge.refuse" (printf "config is not TOML: %s" .) }}{{ end }}
{{- else }}
{{- $tables = deepCopy $values.config }}
{{- end }}
{{- range $key, $value := $tables }}{{ $_ := set $.into $key $value }}{{ end }}
{{- $overlay := dict }}
{{- include "tokengauge.config.overlay" (dict "root" .root "into" $overlay) }}
{{- if $overlay }}
{{- if $overlay.admin }}
{{- $admin := merge (dict) $overlay.admin (omit (default (dict) $tables.admin) "token" "token_file") }}
{{- $_ := set .into "admin" $admin }}
{{- end }}
{{- with $overlay.tls }}{{ $_ := set $.into "tls" . }}{{ end }}
{{- end }}
{{- end }}

{{- /* Settings that depend on the chart's mounts. */}}
{{- define "tokengauge.config.overlay" -}}
{{- $values := .root.Values }}
{{- if eq $values.mode "gateway" }}
{{- if $values.tls.enabled }}
{{- $tls := dict "certificate" "/etc/tokengauge/tls/tls.crt" "key" "/etc/tokengauge/tls/tls.key" }}
{{- if $values.tls.clientCaSecret }}{{ $_ := set $tls "client_ca" "/etc/tokengauge/tls-clients/ca.crt" }}{{ end }}
{{- $_ := set .into "tls" $tls }}
{{- end }}
{{- if $values.admin.tokenSecret.name }}
{{- $_ := set .into "admin" (dict "token_file" (printf "/etc/tokengauge/admin/%s" $values.admin.tokenSecret.key)) }}
{{- end }}
{{- else if and $values.admin.tokenSecret.name $values.admin.metricsToken }}
{{- $_ := set .into "admin" (dict "metrics_token" true) }}
{{- end }}
{{- end }}

{{- /* The configuration's text, unchanged if the chart adds nothing. */}}
{{- define "tokengauge.config.text" -}}
{{- $overlay := dict }}
{{- include "tokengauge.config.overlay" (dict "root" . "into" $overlay) }}
{{- if and (or (not .Values.config) (kindIs "string" .Values.config)) (not $overlay) }}
{{- include "tokengauge.config.written" . }}
{{- else }}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- include "tokengauge.toml" $tables }}
{{- end }}
{{- end }}

{{- /* The configuration without `[tls]`, whose certificate does not exist yet. */}}
{{- define "tokengauge.config.withoutTls" -}}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- include "tokengauge.toml" (omit $tables "tls") }}
{{- end }}

{{- /* Converts values to TOML. Helm's numbers are all fractions; whole ones become integers, which the program accepts as
either. */}}
{{- define "tokengauge.toml" -}}
{{- $whole := dict }}
{{- include "tokengauge.whole" (dict "value" . "into" $whole) }}
{{- toToml $whole.value }}
{{- end }}

{{- /* Puts a value with integers instead of whole fractions into .into.value: dict "value", "into". A list with any other
fraction is unchanged, because TOML lists need one type. */}}
{{- define "tokengauge.whole" -}}
{{- $value := .value }}
{{- if kindIs "map" $value }}
{{- $made := dict }}
{{- range $key, $inner := .value }}
{{- $found := dict }}
{{- include "tokengauge.whole" (dict "value" $inner "into" $found) }}
{{- $_ := set $made $key $found.value }}
{{- end }}
{{- $value = $made }}
{{- else if kindIs "slice" $value }}
{{- $made := list }}
{{- $fraction := false }}
{{- range $inner := .value }}
{{- $found := dict }}
{{- include "tokengauge.whole" (dict "value" $inner "into" $found) }}
{{- $made = append $made $found.value }}
{{- if kindIs "float64" $found.value }}{{ $fraction = true }}{{ end }}
{{- end }}
{{- if not $fraction }}{{ $value = $made }}{{ end }}
{{- else if kindIs "float64" $value }}
{{- if and (eq (floor $value) $value) (lt $value 9.2e18) (gt $value -9.2e18) }}{{ $value = int64 $value }}{{ end }}
{{- end }}
{{- $_ := set .into "value" $value }}
{{- end }}

{{- /* The grace period of a gateway's pod. */}}
{{- define "tokengauge.grace" -}}
{{- if not (kindIs "invalid" .Values.gateway.terminationGracePeriodSeconds) }}
{{- int64 .Values.gateway.terminationGracePeriodSeconds }}
{{- else }}
{{- $tables := dict }}
{{- if not .Values.existingConfigMap }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- end }}
{{- $drain := ternary $tables.drain_timeout "25s" (hasKey $tables "drain_timeout") }}
{{- add (include "tokengauge.seconds" $drain) .Values.gateway.preStopSeconds 10 }}
{{- end }}
{{- end }}

{{- /* "https" if the admin address has TLS. */}}
{{- define "tokengauge.adminScheme" -}}
{{- if .Values.existingConfigMap }}{{ default "http" .Values.admin.scheme }}{{ else }}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- if dig "admin" "tls" false $tables }}https{{ else }}http{{ end }}
{{- end }}
{{- end }}

{{- /* The ConfigMap of a gateway. */}}
{{- define "tokengauge.configMap" -}}
{{- default (include "tokengauge.fullname" .) .Values.existingConfigMap }}
{{- end }}

{{- /* A digest of the settings that need a restart (crates/config/src/reload.rs), so that only a change of these restarts
the pods. */}}
{{- define "tokengauge.config.restartOnly" -}}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- $measure := default (dict) $tables.measure }}
{{- /* The arguments override `listen`. */}}
{{- $admin := omit (default (dict) $tables.admin) "listen" }}
{{- list $admin $tables.otlp $tables.state_dir $tables.ledger $tables.quota_store $tables.sink $measure.max_models | toJson | sha256sum }}
{{- end }}

{{- /* Names of settings that each process counts for itself, one per line. */}}
{{- define "tokengauge.config.ofEachReplica" -}}
{{- if not .Values.existingConfigMap }}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- /* A quota store shares quotas, budgets and alerts; in shadow mode only alerts. */}}
{{- $store := $tables.quota_store }}
{{- $shared := and $store (ne (default "enforce" (get (default (dict) $store) "mode")) "shadow") }}
{{- range $tables.quota }}
{{- if and (not $shared) (ne (default "enforce" .mode) "shadow") }}
quota {{ .name }}
{{- end }}
{{- end }}
{{- if dig "limits" "requests_per_minute" false $tables }}
limits.requests_per_minute
{{- end }}
{{- range $tables.budget }}
{{- if and .block (not $shared) (ne (default "enforce" .mode) "shadow") }}
budget {{ .name }}
{{- end }}
{{- end }}
{{- range (ternary (list) $tables.notify (not (empty $store))) }}
notify {{ default .kind .name }}
{{- end }}
{{- end }}
{{- end }}
