-- Moves an idle pod to another tier, or marks a busy one to be moved by its release.
-- pod, from, to, epoch, uid, mark ("1": mark a busy pod)
local pod, epoch, uid, mark = ARGV[3], ARGV[6], ARGV[7], ARGV[8] == '1'
local from, to = by_name[ARGV[4]], by_name[ARGV[5]]

if config_changed() then return {'ConfigChanged'} end
local refusal = fenced(epoch)
if refusal then return refusal end
if not from or not to or from == to or not from.in_chain or not to.in_chain then return {'NoTier'} end

if is_misnamed(pod) then return {'Unsound', MISNAMED[3]} end
local tier = redis.call('GET', tier_key(pod))
local there = assigned_to(pod)
if #there == 1 and there[1] ~= from then
  return {there[1] == to and tier == to.name and 'AlreadyThere' or 'NotThere'}
end
if #there == 0 then return {'NotThere'} end
if #there > 1 or free_calls(to, pod) or (tier and tier ~= from.name) then return {'Unsound'} end
if is_other_uid(pod, uid) then return {'OtherUid'} end
if redis.call('EXISTS', draining_key(pod)) == 1 then return {'Draining'} end
if redis.call('SCARD', from.assigned) <= from.target then return {'SourceNotOver'} end
if redis.call('SCARD', to.assigned) >= to.target then return {'DestinationFull'} end

local pending = redis.call('HGET', PENDING, pod)
local is_leased = redis.call('EXISTS', lease_key(pod)) == 1
if is_leased or free_calls(from, pod) ~= 0 or has_calls(pod) then
  if not mark then return {is_leased and 'Leased' or 'Busy'} end
  if pending ~= to.name then redis.call('HSET', PENDING, pod, to.name) end
  raise_epoch(epoch)
  return {'Pending'}
end
local metadata, is_malformed = metadata_with(pod, to.name)
local is_suspect = redis.call('HEXISTS', SUSPECTS, pod) == 1

unpublish(from, pod)
redis.call('SREM', from.assigned, pod)
redis.call('SET', tier_key(pod), to.name)
redis.call('SADD', to.assigned, pod)
publish(to, pod, 0)
if metadata then redis.call('HSET', METADATA, pod, metadata) end
if pending then redis.call('HDEL', PENDING, pod) end
if is_suspect then redis.call('HDEL', SUSPECTS, pod) end
raise_epoch(epoch)
return {'Moved', is_malformed and 'metadata is malformed' or ''}
