-- Decides which process sends an alert to a receiver.
-- KEYS[1]: the alert. ARGV: process, whether the alert fires in that process (1 or 0), whether a notification is due
-- there (1 or 0), whether that process has delivered one (1 or 0), milliseconds after which a firing alert is sent
-- again, milliseconds for which a claim is valid.
-- Returns a decision and whether the process holds the claim. Decision 1: send the notification (firing or resolved).
-- 0: wait, because another process sends it or the alert still fires in another process. 2: already delivered.
local key, process = KEYS[1], ARGV[1]
local fires, wants, delivered = ARGV[2] == '1', ARGV[3] == '1', ARGV[4] == '1'
local again, lifetime = tonumber(ARGV[5]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function text(number) return string.format('%.17g', number) end

if fires then
  redis.call('HSET', key, 'f:' .. process, text(now + lifetime))
  redis.call('HDEL', key, 'resolved')
  -- If the store lost its data, a process that knows of the delivery restores it.
  if delivered then redis.call('HSETNX', key, 'sent', text(now)) end
else
  redis.call('HDEL', key, 'f:' .. process)
end
local all = redis.call('HGETALL', key)
local sent, holder, holds_until, anywhere, resolved = nil, nil, 0, false, false
for i = 1, #all, 2 do
  local field, value = all[i], all[i + 1]
  if string.sub(field, 1, 2) == 'f:' then
    if tonumber(value) > now then anywhere = true else redis.call('HDEL', key, field) end
  elseif field == 'sent' then sent = tonumber(value)
  elseif field == 'holder' then holder = value
  elseif field == 'until' then holds_until = tonumber(value)
  elseif field == 'resolved' then resolved = true
  end
end
if holder and holds_until <= now then holder = nil end
if holder == process and not fires and anywhere then
  -- The alert still fires elsewhere, so one of the other processes sends from now on.
  redis.call('HDEL', key, 'holder', 'until')
  holder = nil
end
if holder == process and fires and not wants and not sent then
  -- This process could not deliver it, so another one may try.
  redis.call('HDEL', key, 'holder', 'until')
  holder = nil
end
local decision = 0
if not fires and resolved then
  decision = 2
elseif not fires and anywhere then
  decision = 0
elseif fires and sent and now - sent < again then
  decision = 2
elseif wants and (not holder or holder == process) then
  decision, holder = 1, process
end
if holder == process then redis.call('HSET', key, 'holder', process, 'until', text(now + lifetime)) end
redis.call('PEXPIRE', key, math.max(again, lifetime) * 2)
return { decision, holder == process and 1 or 0 }
