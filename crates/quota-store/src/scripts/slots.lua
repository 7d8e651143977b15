-- A limit on concurrent calls that processes share. Each process holds slots as long as it reports them.
-- KEYS[1]: the limit. ARGV: number of slots, process, slots it uses, slots it wants to hold, milliseconds after which
-- its slots expire.
-- Returns how many slots the process holds, and how many are free.
local key, process = KEYS[1], ARGV[2]
local limit, used, want, lifetime = tonumber(ARGV[1]), tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function text(number) return string.format('%.17g', number) end

local state = redis.call('HMGET', key, 'out', 'next', 'h:' .. process)
local out, next_expiry, before = tonumber(state[1]) or 0, tonumber(state[2]) or 0, tonumber(state[3])
if next_expiry > 0 and now >= next_expiry then
  local all = redis.call('HGETALL', key)
  local held = {}
  for i = 1, #all, 2 do held[all[i]] = all[i + 1] end
  next_expiry, out = 0, 0
  for field, value in pairs(held) do
    if string.sub(field, 1, 2) == 'e:' then
      local other, expiry = string.sub(field, 3), tonumber(value)
      if expiry <= now then
        redis.call('HDEL', key, 'h:' .. other, 'e:' .. other)
        if other == process then before = nil end
      else
        out = out + (tonumber(held['h:' .. other]) or 0)
        if next_expiry == 0 or expiry < next_expiry then next_expiry = expiry end
      end
    end
  end
end
before = before or 0

-- Slots in use are always held, because one may have been taken on credit.
local free = limit - (out - before)
local held = math.max(used, math.min(want, math.max(free, 0)))
out = out - before + held
if held > 0 then
  local expiry = now + lifetime
  redis.call('HSET', key, 'h:' .. process, text(held), 'e:' .. process, text(expiry))
  if next_expiry == 0 or expiry < next_expiry then next_expiry = expiry end
else
  redis.call('HDEL', key, 'h:' .. process, 'e:' .. process)
end
redis.call('HSET', key, 'out', text(out), 'next', text(next_expiry))
redis.call('PEXPIRE', key, lifetime + 1000)
return { held, limit - out }
