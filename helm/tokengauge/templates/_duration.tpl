{{- /* A duration of the configuration ("10.5m", "1h30m", "500ms", "0") in whole seconds, rounded up. This refuses the same durations as
the program (crate humantime): unknown units, and fractions that are not whole nanoseconds, or from hours on not whole
seconds. */}}
{{- define "tokengauge.seconds" -}}
{{- $units := "nanos|nsec|ns|usec|us|µs|millis|msec|ms|seconds|second|secs|sec|s|minutes|minute|mins|min|m|hours|hour|hrs|hr|h|days|day|d|weeks|week|wks|wk|w|months|month|M|years|year|yrs|yr|y" }}
{{- $blank := "[\\s\\v\\x{85}\\p{Z}]*" }}
{{- $number := printf "([0-9](?:%s[0-9])*)%s(?:\\.%s([0-9](?:%s[0-9])*)%s)?" $blank $blank $blank $blank $blank }}
{{- /* A unit ends before a digit, a blank or the end of the text. */}}
{{- $span := printf "%s(%s)" $number $units }}
{{- $all := printf "^(?:%s%s(?:%s|$))+$" $blank $span $blank }}
{{- if not (kindIs "string" .) }}{{ include "tokengauge.duration.refuse" (toString .) }}{{ end }}
{{- $seconds := 0 }}
{{- $nanos := 0 }}
{{- if ne . "0" }}
{{- if not (regexMatch $all .) }}{{ include "tokengauge.duration.refuse" . }}{{ end }}
{{- range regexFindAll $span . -1 }}
{{- $written := dict "text" . "span" $span }}
{{- include "tokengauge.duration.part" $written }}
{{- $nanos = add $nanos $written.nanos }}
{{- $seconds = add $seconds $written.seconds (div $nanos 1000000000) }}
{{- $nanos = mod $nanos 1000000000 }}
{{- end }}
{{- end }}
{{- add $seconds (ternary 1 0 (gt (int64 $nanos) 0)) }}
{{- end }}

{{- define "tokengauge.duration.refuse" -}}
{{- include "tokengauge.refuse" (printf "drain_timeout: %q is not a duration such as \"250ms\", \"30s\", \"10.5m\" or \"1h 30m\", or it is too long or too precise" .) }}
{{- end }}

{{- /* Adds .seconds and .nanos for .text, which is one number with its unit. */}}
{{- define "tokengauge.duration.part" -}}
{{- $blanks := "[\\s\\v\\x{85}\\p{Z}]+" }}
{{- $text := regexReplaceAll $blanks .text "" }}
{{- $whole := regexFind "^[0-9]+" $text | trimPrefix "0" | regexFind "[1-9][0-9]*" | default "0" }}
{{- $fraction := regexFind "\\.[0-9]+" $text | trimPrefix "." | regexFind "^[0-9]*[1-9]" }}
{{- $unit := regexFind "[^0-9.]+$" $text }}
{{- /* The unit is $factor seconds; with $small, nanoseconds. */}}
{{- $small := regexMatch "^(n|u|µ|ms|msec|millis|s|m$|min)" $unit }}
{{- $factor := 1000000000 }}
{{- if regexMatch "^n" $unit }}{{ $factor = 1 }}
{{- else if regexMatch "^[uµ]" $unit }}{{ $factor = 1000 }}
{{- else if regexMatch "^(ms|msec|millis)$" $unit }}{{ $factor = 1000000 }}
{{- else if regexMatch "^(m|min.*)$" $unit }}{{ $factor = 60000000000 }}
{{- else if hasPrefix "h" $unit }}{{ $factor = 3600 }}
{{- else if hasPrefix "d" $unit }}{{ $factor = 86400 }}
{{- else if hasPrefix "w" $unit }}{{ $factor = 604800 }}
{{- else if regexMatch "^(M|month.*)$" $unit }}{{ $factor = 2630016 }}
{{- else if hasPrefix "y" $unit }}{{ $factor = 31557600 }}
{{- end }}
{{- /* A pod's grace period is an int64 of seconds. */}}
{{- $whole_seconds := and $small (ge (int64 $factor) 1000000000) }}
{{- $times := ternary (div $factor 1000000000) (int64 $factor) $whole_seconds }}
{{- $finest := and (eq (int64 $factor) 1) (contains "." $text) }}
{{- if or $finest (gt (len $whole) 18) (gt (mulf $whole $times) 9e18) }}{{ include "tokengauge.duration.refuse" .text }}{{ end }}
{{- $value := mul (int64 $whole) $times }}
{{- $per := ternary 1000000000 1 (and $small (not $whole_seconds)) }}
{{- $_ := set . "seconds" (div $value $per) }}
{{- $_ := set . "nanos" (mod $value $per) }}
{{- if $fraction }}
{{- /* Cancels common factors of ten, so that nothing overflows. */}}
{{- $tens := min (len (regexFind "0*$" (toString $factor))) (len $fraction) | int }}
{{- $factor = div $factor (printf "1%s" (repeat $tens "0") | int64) }}
{{- $rest := sub (len $fraction) $tens | int }}
{{- if gt $rest 9 }}{{ include "tokengauge.duration.refuse" .text }}{{ end }}
{{- $divisor := printf "1%s" (repeat $rest "0") | int64 }}
{{- $numerator := mul (trimPrefix "0" (regexFind "[1-9].*" $fraction) | int64) $factor }}
{{- if ne (mod $numerator $divisor) 0 }}{{ include "tokengauge.duration.refuse" .text }}{{ end }}
{{- $value := div $numerator $divisor }}
{{- $_ := set . "seconds" (add .seconds (ternary 0 $value $small)) }}
{{- $_ := set . "nanos" (add .nanos (ternary $value 0 $small)) }}
{{- end }}
{{- end }}
