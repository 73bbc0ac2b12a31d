-- Puts back a pod that nobody holds: only when two sweeps, at least one lease apart, saw it without lease,
-- call or change. A sweep that sees it well forgets what the sweep before it saw.
-- pod, epoch, lease in ms
local pod, epoch, lease_ms = ARGV[3], ARGV[4], tonumber(ARGV[5])

if config_changed() then return {'ConfigChanged'} end
local refusal = fenced(epoch)
if refusal then return refusal end
if is_misnamed(pod) then return MISNAMED end
local there = assigned_to(pod)
if #there == 0 then return {'NotThere'} end
if #there > 1 then return {'Unsound'} end
local tier = there[1]
local named = redis.call('GET', tier_key(pod)) or ''
for _, each in ipairs(tiers) do
  if each ~= tier and free_calls(each, pod) then return {'Unsound'} end
end
if named ~= tier.name then return {'Unsound'} end

local calls = free_calls(tier, pod)
local alive, dead = calls_of(pod)
local mark = redis.call('HGET', SUSPECTS, pod)
local is_held = redis.call('EXISTS', lease_key(pod)) == 1 or #alive > 0
local is_well = redis.call('EXISTS', draining_key(pod)) == 1 or calls ~= nil or is_held
-- On a shared pod, calls whose record has expired still take their places, whoever else is there.
if tier.shared and calls and #dead > 0 then is_well = false end
table.sort(dead)
local seen_now = {tier.name, calls and 'free' or 'taken', table.concat(dead, '\0')}
if not tier.shared then seen_now[4] = table.concat(redis.call('HGETALL', pod_key(pod)), '\0') end
local signature = redis.sha1hex(table.concat(seen_now, '\n'))
local now = now_ms()

raise_epoch(epoch)
if is_well then
  if mark then redis.call('HDEL', SUSPECTS, pod) end
  return {'Healthy', tier.name}
end
local since, seen = string.match(mark or '', '^(%d+) (%x+)$')
-- A mark of the future was set by a clock that went wrong, and its time might never come.
if seen ~= signature or tonumber(since) - now > lease_ms then
  redis.call('HSET', SUSPECTS, pod, string.format('%.0f %s', now, signature))
  return {'Suspected', tier.name}
end
if now - tonumber(since) < lease_ms then return {'Waiting', tier.name} end
publish(tier, pod, calls and math.max(calls - #dead, #alive) or 0)
for _, call in ipairs(dead) do redis.call('SREM', calls_key(pod), call) end
redis.call('HDEL', SUSPECTS, pod)
return {'Recovered', tier.name}
