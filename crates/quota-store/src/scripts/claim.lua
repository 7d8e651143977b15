-- Which process sends an alert to a receiver.
-- KEYS[1]: the alert. ARGV: process, whether it fires there (1 or 0), whether the process would send it now (1 or 0),
-- whether it knows it as delivered (1 or 0), milliseconds after which it is sent again while it fires, milliseconds
-- for which a claim holds.
-- Returns a decision and whether the process is the one that sends: 1 to send it now (that it fires, or is resolved),
-- 0 to wait, since another one sends it, or it still fires elsewhere, 2 where it is delivered already.
local key, process = KEYS[1], ARGV[1]
local fires, wants, delivered = ARGV[2] == '1', ARGV[3] == '1', ARGV[4] == '1'
local again, lifetime = tonumber(ARGV[5]), tonumber(ARGV[6])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function text(number) return string.format('%.17g', number) end

if fires then
  redis.call('HSET', key, 'f:' .. process, text(now + lifetime))
  redis.call('HDEL', key, 'resolved')
  -- A store that lost what was sent gets it back from those who know it.
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
  -- It goes on elsewhere: one of those sends from now on.
  redis.call('HDEL', key, 'holder', 'until')
  holder = nil
end
if holder == process and fires and not wants and not sent then
  -- It could not deliver it: another one may try.
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
