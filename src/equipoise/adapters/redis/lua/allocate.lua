-- Gives a free pod to a call: claim, lease and record in one step. The same call gets the same pod.
-- call, lease in ms, record in ms, tier (empty: the chain)
local call, lease_ms, record_ms, wanted = ARGV[3], ARGV[4], ARGV[5], ARGV[6]
local record = call_key(call)
local TRIES = 16

if config_changed() then return {'ConfigChanged'} end
if wanted ~= '' and not by_name[wanted] then return {'NoTier'} end

if redis.call('EXISTS', record) == 1 then
  local pod, tier = unpack(redis.call('HMGET', record, 'pod_name', 'tier'))
  if pod and redis.call('SISMEMBER', calls_key(pod), call) == 1 then return {'Allocated', pod, tier, 'again'} end
  return {'CallTaken'}
end

local function is_fit(tier, pod)
  local named = redis.call('GET', tier_key(pod))
  return not is_misnamed(pod)
    and redis.call('SISMEMBER', tier.assigned, pod) == 1
    and (not named or named == tier.name)
    and redis.call('EXISTS', draining_key(pod)) == 0
    and (tier.shared or (redis.call('EXISTS', lease_key(pod)) == 0 and not has_calls(pod)))
end

local function first_fit(tier, pods)
  for _, pod in ipairs(pods) do
    if is_fit(tier, pod) then return pod end
  end
  return nil
end

-- The least loaded first, also one whose count somebody has lowered too often; all of them are looked at only
-- when the first few are unfit.
local function shared_pod(tier)
  local limit = '(' .. tier.most
  local pods = redis.call('ZRANGEBYSCORE', tier.available, '-inf', limit, 'LIMIT', 0, TRIES)
  local pod = first_fit(tier, pods)
  if pod or #pods < TRIES then return pod end
  return first_fit(tier, redis.call('ZRANGEBYSCORE', tier.available, '-inf', limit))
end

local function exclusive_pod(tier)
  local pod = redis.call('SRANDMEMBER', tier.available)
  if not pod or is_fit(tier, pod) then return pod end
  return first_fit(tier, redis.call('SMEMBERS', tier.available))
end

local tier, pod
for _, each in ipairs(tiers) do
  if each.name == wanted or (wanted == '' and each.in_chain) then
    tier, pod = each, each.shared and shared_pod(each) or (not each.shared and exclusive_pod(each) or nil)
    if pod then break end
  end
end
if not pod then return {'NoneFree'} end
local uid = recorded_uid(pod)
local lease, calls = lease_key(pod), calls_key(pod)
local has_place = false
if tier.shared then
  -- Of an exclusive pod it is known already: it has no lease, and its calls were read.
  redis.call('GET', lease)
  -- A call whose record ran out, and that comes again, is still counted where it was.
  has_place = redis.call('SISMEMBER', calls, call) == 1
end
local is_suspect = redis.call('HEXISTS', SUSPECTS, pod) == 1
if is_dry then return {'Allocated', pod, tier.name} end

if tier.shared then
  local calls_now = tonumber(redis.call('ZINCRBY', tier.available, has_place and 0 or 1, pod))
  if calls_now < 1 then redis.call('ZADD', tier.available, 1, pod) end
else
  redis.call('SREM', tier.available, pod)
end
redis.call('SET', lease, call, 'PX', lease_ms)
redis.call('HSET', record, 'pod_name', pod, 'tier', tier.name, 'uid', uid)
redis.call('PEXPIRE', record, record_ms)
redis.call('SADD', calls, call)
if is_suspect and not tier.shared then redis.call('HDEL', SUSPECTS, pod) end
return {'Allocated', pod, tier.name}, true
