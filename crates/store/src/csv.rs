pub const LINE_END: &str = "\r\n";

/// First characters of formulas in spreadsheets and their full-width forms, from OWASP's "CSV
/// Injection".
const FORMULA: &[char] = &['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'];

/// A CSV field, quoted if necessary. With `spreadsheet`, a `'` precedes text that a spreadsheet
/// would take for a formula.
pub fn text(text: &str, spreadsheet: bool) -> String {
    let formula = text.starts_with(FORMULA);
    let text = if spreadsheet && formula {
        format!("'{text}")
    } else {
        text.to_owned()
    };
    if text.contains([',', '"', '\r', '\n']) {
        format!("\"{}\"", text.replace('"', "\"\""))
    } else {
        text
    }
}

#[cfg(test)]
mod tests {
    use super::text;

    #[test]
    fn a_text_is_quoted_where_it_needs_it() {
        assert_eq!(text("plain", false), "plain");
        assert_eq!(text("[\"stop\"]", false), "\"[\"\"stop\"\"]\"");
        assert_eq!(text("a\nb", false), "\"a\nb\"");
        assert_eq!(text("=1+1", false), "=1+1");
        assert_eq!(text("=1,1", true), "\"'=1,1\"");
    }
}
