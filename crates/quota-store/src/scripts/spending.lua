-- What all processes have spent under one name in one period, in billionths of a US dollar.
-- KEYS[1]: the name in its period. ARGV: process, number of its report, what it spent since its last report, what all
-- are known to have spent, milliseconds after which it is forgotten.
-- Returns the sum, as text: it may be larger than a reply's integers are exact.
local key, process = KEYS[1], ARGV[1]
local sequence, known = tonumber(ARGV[2]), tonumber(ARGV[4])
local state = redis.call('HMGET', key, 'sum', 's:' .. process)
-- A store that lost what it had gets it back from those who know it.
if (tonumber(state[1]) or 0) < known then redis.call('HSET', key, 'sum', ARGV[4]) end
if sequence > (tonumber(state[2]) or 0) then
  redis.call('HINCRBY', key, 'sum', ARGV[3])
  redis.call('HSET', key, 's:' .. process, ARGV[2])
end
redis.call('PEXPIRE', key, ARGV[5])
return redis.call('HGET', key, 'sum')
