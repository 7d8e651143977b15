-- A limit per minute that processes share. It is a token bucket on the server's clock, and each process holds a lease.
-- KEYS[1]: the bucket. ARGV: limit per minute, size of one lease, process, amount used since its lease began, part of
-- that amount that the process knows is counted, amount it wants to hold, milliseconds after which its lease expires.
-- Returns the amount that the process holds, the free amount, and milliseconds until some is free again.
local key, process = KEYS[1], ARGV[3]
local limit, worth = tonumber(ARGV[1]), tonumber(ARGV[2])
local used, acknowledged = tonumber(ARGV[4]), tonumber(ARGV[5])
local want, lifetime = tonumber(ARGV[6]), tonumber(ARGV[7])
local time = redis.call('TIME')
local now = tonumber(time[1]) * 1000 + math.floor(tonumber(time[2]) / 1000)
local function text(number) return string.format('%.17g', number) end

local bucket = redis.call('HMGET', key, 'free', 'at', 'out', 'next', 'holders')
local free, at = tonumber(bucket[1]) or limit, tonumber(bucket[2]) or now
local out, next_expiry = tonumber(bucket[3]) or 0, tonumber(bucket[4]) or 0
local holders = tonumber(bucket[5]) or 0

-- The free amount grows with time. Free and leased amounts together never exceed the limit.
free = math.max(math.min(free + math.max(now - at, 0) * limit / 60000, limit - out), math.min(free, limit))

-- Expire leases of processes that have not reported in time.
if next_expiry > 0 and now >= next_expiry then
  local all = redis.call('HGETALL', key)
  local held = {}
  for i = 1, #all, 2 do held[all[i]] = all[i + 1] end
  next_expiry, out, holders = 0, 0, 0
  for field, value in pairs(held) do
    if string.sub(field, 1, 2) == 'e:' then
      local other, expiry = string.sub(field, 3), tonumber(value)
      local has = tonumber(held['h:' .. other]) or 0
      if expiry <= now then
        -- The process may have used part of its lease without reporting it, so at most one lease is returned.
        free = free + math.min(has, worth)
        redis.call('HDEL', key, 'h:' .. other, 'e:' .. other, 'u:' .. other)
      else
        out, holders = out + has, holders + 1
        if next_expiry == 0 or expiry < next_expiry then next_expiry = expiry end
      end
    end
  end
  free = math.min(free, limit - out)
end

local own = redis.call('HMGET', key, 'h:' .. process, 'u:' .. process)
local held, counted = tonumber(own[1]), tonumber(own[2]) or acknowledged
if not held then held, holders = 0, holders + 1 end
local before = held
-- It took what it used beyond its lease on credit.
held = held - math.max(used - counted, 0)
if held < 0 then free, held = free + held, 0 end

local most = math.max(worth, math.floor(free / (2 * math.max(holders, 1))))
local target = math.min(want, most)
if held > target then
  free, held = free + (held - target), target
else
  local grant = math.min(target - held, math.max(math.floor(free), 0))
  free, held = free - grant, held + grant
end
out = out + held - before

if held > 0 then
  local expiry = now + lifetime
  redis.call('HSET', key, 'h:' .. process, text(held), 'e:' .. process, text(expiry), 'u:' .. process, text(used))
  if next_expiry == 0 or expiry < next_expiry then next_expiry = expiry end
else
  holders = holders - 1
  redis.call('HDEL', key, 'h:' .. process, 'e:' .. process, 'u:' .. process)
end
redis.call('HSET', key, 'free', text(free), 'at', text(now), 'out', text(out), 'next', text(next_expiry),
  'holders', text(holders))
-- A full bucket without leases is the same as a new one.
local full = math.ceil((limit - free) * 60000 / limit)
redis.call('PEXPIRE', key, math.max(full, lifetime) + 1000)

local wait = 0
if held < 1 and free < 1 then wait = math.ceil((1 - free) * 60000 / limit) end
return { held, math.floor(free), wait }
