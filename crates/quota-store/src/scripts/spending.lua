-- The spending of all processes under one name in one period, in billionths of a US dollar.
-- KEYS[1]: the name in its period. ARGV: process, number of its report, spending since its last report, known spending
-- of all processes, milliseconds after which the sum expires.
-- Returns the sum as text, because it may exceed the exact integers of a reply.
local key, process = KEYS[1], ARGV[1]
local sequence, known = tonumber(ARGV[2]), tonumber(ARGV[4])
local state = redis.call('HMGET', key, 'sum', 's:' .. process)
-- If the store lost its data, a process that knows the sum restores it.
if (tonumber(state[1]) or 0) < known then redis.call('HSET', key, 'sum', ARGV[4]) end
if sequence > (tonumber(state[2]) or 0) then
  redis.call('HINCRBY', key, 'sum', ARGV[3])
  redis.call('HSET', key, 's:' .. process, ARGV[2])
end
redis.call('PEXPIRE', key, ARGV[5])
return redis.call('HGET', key, 'sum')
