{{- /* The configuration as it is written, where it is a text: the proxy's own example where there is none. */}}
{{- define "tokengauge.config.written" -}}
{{- default (.Files.Get "files/proxy-config.toml") .Values.config }}
{{- end }}

{{- /* The tables of the configuration as the proxy gets it, put into .into: dict "root", "into". The result of an
include is a text, and through JSON whole numbers would become fractions. */}}
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

{{- /* What the chart knows better than whoever writes the configuration: where it mounts things. */}}
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

{{- /* The configuration's text, in the operator's own words where nothing is put in. */}}
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

{{- /* The same without `[tls]`, whose certificate is not there yet. */}}
{{- define "tokengauge.config.withoutTls" -}}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- include "tokengauge.toml" (omit $tables "tls") }}
{{- end }}

{{- /* TOML of values, whose numbers are all fractions: the whole ones become integers, which the program takes for
either. */}}
{{- define "tokengauge.toml" -}}
{{- $whole := dict }}
{{- include "tokengauge.whole" (dict "value" . "into" $whole) }}
{{- toToml $whole.value }}
{{- end }}

{{- /* Puts a value with its whole fractions as integers into .into.value: dict "value", "into". A list with another fraction
stays as it is: its numbers are of one kind. */}}
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

{{- /* How long a gateway's pod may take to end. */}}
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

{{- /* "https" where the admin address has TLS. */}}
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

{{- /* A digest of what only a restart changes (crates/config/src/reload.rs), so that a change of it rolls the pods, and no other
change does. */}}
{{- define "tokengauge.config.restartOnly" -}}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- $measure := default (dict) $tables.measure }}
{{- /* `listen` is overridden by the arguments. */}}
{{- $admin := omit (default (dict) $tables.admin) "listen" }}
{{- list $admin $tables.otlp $tables.state_dir $tables.ledger $tables.quota_store $tables.sink $measure.max_models | toJson | sha256sum }}
{{- end }}

{{- /* What of the configuration is counted or done by each process for itself, one name a line. */}}
{{- define "tokengauge.config.ofEachReplica" -}}
{{- if not .Values.existingConfigMap }}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- /* A quota store shares quotas, budgets and alerts; in shadow mode alerts alone. */}}
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
