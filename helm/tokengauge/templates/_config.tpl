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

{{- /* TOML of values, whose numbers are fractions: 5 would be written as 5.0. */}}
{{- define "tokengauge.toml" -}}
{{- regexReplaceAll "(?m)^(\\s*\\S+ = -?[0-9]+)\\.0$" (toToml .) "${1}" }}
{{- end }}

{{- /* Seconds of a duration as the configuration writes it. */}}
{{- define "tokengauge.seconds" -}}
{{- $units := dict "m" 60 "h" 3600 "d" 86400 "s" 1 }}
{{- $total := 0 }}
{{- range regexFindAll "[0-9]+ *[a-z]+" . -1 }}
{{- $number := regexFind "^[0-9]+" . | int }}
{{- $unit := regexFind "[a-z]+$" . }}
{{- if hasPrefix "ms" $unit }}
{{- $total = add $total (div (add $number 999) 1000) }}
{{- else }}
{{- $total = add $total (mul $number (required (printf "drain_timeout: the chart does not know the unit of %s" .) (get $units (substr 0 1 $unit)))) }}
{{- end }}
{{- end }}
{{- $total }}
{{- end }}

{{- /* How long a gateway's pod may take to end. */}}
{{- define "tokengauge.grace" -}}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- add (include "tokengauge.seconds" (default "25s" $tables.drain_timeout)) .Values.gateway.preStopSeconds 10 }}
{{- end }}

{{- /* "https" where the admin address has TLS. */}}
{{- define "tokengauge.adminScheme" -}}
{{- $tables := dict }}
{{- include "tokengauge.config.tables" (dict "root" . "into" $tables) }}
{{- if dig "admin" "tls" false $tables }}https{{ else }}http{{ end }}
{{- end }}
