-- Version 10: what each user, key and tool spends by day.

-- Sums of the calls of one series, user, key and combination of tools that began within the day of UTC from `day`
-- (seconds since 1970). An absent name is 0.
CREATE TABLE daily_spending (
  day INTEGER NOT NULL,
  user INTEGER NOT NULL,
  key_hash INTEGER NOT NULL,
  series INTEGER NOT NULL,
  tools INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  input_tokens INTEGER,
  cached_input_tokens INTEGER,
  output_tokens INTEGER,
  reasoning_tokens INTEGER,
  cost_nano_usd INTEGER,
  unpriced_calls INTEGER NOT NULL,
  PRIMARY KEY (day, user, key_hash, series, tools)
) STRICT, WITHOUT ROWID;

-- Calls with a smaller key are not in that table yet, because they are older than the table. The newest are added first.
ALTER TABLE unsummed ADD COLUMN spending_below_key INTEGER NOT NULL DEFAULT 0;
UPDATE unsummed SET spending_below_key = (SELECT coalesce(max(key) + 1, 0) FROM calls);
