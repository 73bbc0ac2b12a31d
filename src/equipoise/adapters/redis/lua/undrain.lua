-- Puts a drained pod back: free at once when it is idle, else when its call is released.
-- pod, uid, cause (empty: whatever it was; else only what was drained for one), epoch
local pod, uid, cause, epoch = ARGV[3], ARGV[4], ARGV[5] or '', ARGV[6] or ''

if config_changed() then return {'ConfigChanged'} end
local refusal = fenced(epoch)
if refusal then return refusal end
if is_misnamed(pod) then return MISNAMED end
local there = assigned_to(pod)
if #there == 0 then return {'NotThere'} end
if #there > 1 then return {'Unsound'} end
if is_other_uid(pod, uid) then return {'OtherUid'} end
local tier = there[1]
local draining = redis.call('GET', draining_key(pod))
local was_cause = redis.call('HGET', pod_key(pod), 'suspended')
-- A mark that ends by time, or has no count, is another program's: it took the place of ours.
local is_foreign = draining and (redis.call('PTTL', draining_key(pod)) > 0 or not tonumber(draining))
if not draining or (cause ~= '' and (is_foreign or not was_cause)) then
  if was_cause and not is_dry then redis.call('HDEL', pod_key(pod), 'suspended') end
  return {draining and 'Draining' or 'NotDraining', tier.name}
end
local calls = free_calls(tier, pod)
local alive = calls_of(pod)
local is_leased = redis.call('GET', lease_key(pod)) ~= false
if is_dry then return {'Undrained', tier.name} end

raise_epoch(epoch)
redis.call('DEL', draining_key(pod))
if was_cause then redis.call('HDEL', pod_key(pod), 'suspended') end
if calls then return {'Undrained', tier.name} end
if tier.shared then
  -- In this order: a foreign mark may be "nan", which is never the greater one.
  publish(tier, pod, math.max(#alive, tonumber(draining) or 0))
elseif not is_leased and #alive == 0 then
  publish(tier, pod, 0)
end
return {'Undrained', tier.name}
