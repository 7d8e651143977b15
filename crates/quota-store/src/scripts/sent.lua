-- Records that a process has delivered an alert. KEYS[1]: the alert. ARGV: whether it fires (1) or is resolved (0),
-- milliseconds for which a resolved alert is remembered.
local key = KEYS[1]
if ARGV[1] == '1' then
  local time = redis.call('TIME')
  local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
  redis.call('HSET', key, 'sent', string.format('%.17g', now))
else
  redis.call('DEL', key)
  redis.call('HSET', key, 'resolved', '1')
  redis.call('PEXPIRE', key, ARGV[2])
end
return { 1 }
