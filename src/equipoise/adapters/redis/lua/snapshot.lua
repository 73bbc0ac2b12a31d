-- Reads pods, each at one moment: which tiers have it, and what its keys say. Changes nothing. Keys of a wrong type
-- are named, not read. A small fleet is found and read at once; of a large one the caller names some at a time,
-- since nobody else is answered meanwhile. The answer goes column by column: rows would take twice as long.
-- how many pods it may look for itself, the number of extra tiers, their names, then pods to read
local most, extra = tonumber(ARGV[3]), tonumber(ARGV[4])

local function type_of(key)
  local answer = redis.call('TYPE', key)
  return type(answer) == 'table' and answer.ok or answer
end

local pods, seen = {}, {}
local function note(pod)
  if seen[pod] then return end
  seen[pod] = true
  pods[#pods + 1] = pod
end

local names, pools, total = {}, {}, 0
for _, tier in ipairs(tiers) do names[#names + 1] = tier.name end
for at = 5, 4 + extra do
  if not by_name[ARGV[at]] then names[#names + 1] = ARGV[at] end
end
for at = 5 + extra, #ARGV do note(ARGV[at]) end
for _, name in ipairs(names) do
  local pool = prefix .. ':pool:' .. name
  local kind, free = type_of(pool .. ':assigned'), type_of(pool .. ':available')
  local assigned = kind == 'set' and redis.call('SCARD', pool .. ':assigned') or 0
  local available = free == 'set' and redis.call('SCARD', pool .. ':available')
    or free == 'zset' and redis.call('ZCARD', pool .. ':available') or 0
  total = total + math.max(assigned, available)
  pools[#pools + 1] = {name, kind, free, assigned}
end

-- Keys of a wrong type: the number of their pod, or 0; the key; its type.
local wrong = {}
local function note_wrong(number, key, kind)
  local at = #wrong
  wrong[at + 1], wrong[at + 2], wrong[at + 3] = number, key, kind
end

local function expect(key, kind)
  local found = type_of(key)
  if found ~= kind and found ~= 'none' then note_wrong(0, key, found) end
  return found == kind
end
local has_metadata, has_pending = expect(METADATA, 'hash'), expect(PENDING, 'hash')
expect(SUSPECTS, 'hash')
local config = expect(KEYS[1], 'string') and redis.call('GET', KEYS[1])
local epoch = expect(EPOCH, 'string') and redis.call('GET', EPOCH)
if has_metadata then total = math.max(total, redis.call('HLEN', METADATA)) end

local is_whole = total <= most
if is_whole then
  for _, pool in ipairs(pools) do
    local key = prefix .. ':pool:' .. pool[1]
    local assigned = pool[2] == 'set' and redis.call('SMEMBERS', key .. ':assigned') or {}
    local free = pool[3] == 'set' and redis.call('SMEMBERS', key .. ':available')
      or pool[3] == 'zset' and redis.call('ZRANGE', key .. ':available', 0, -1) or {}
    for _, pod in ipairs(assigned) do note(pod) end
    for _, pod in ipairs(free) do note(pod) end
  end
  if has_metadata then
    for _, pod in ipairs(redis.call('HKEYS', METADATA)) do note(pod) end
  end
end
if #pods == 0 then return {config, epoch, pools, is_whole and 1 or 0, wrong, pods} end

-- The texts of all pods under one beginning. MGET has none for a key of a wrong type.
local function texts(beginning)
  local keys, there = {}, 0
  for number, pod in ipairs(pods) do keys[number] = prefix .. beginning .. pod end
  local found = redis.call('MGET', unpack(keys))
  for number = 1, #pods do
    if found[number] then there = there + 1 end
  end
  if redis.call('EXISTS', unpack(keys)) > there then
    for number, key in ipairs(keys) do
      local kind = not found[number] and type_of(key) or 'none'
      if kind ~= 'none' then note_wrong(number, key, kind) end
    end
  end
  return found
end

local tier_texts, draining, leases = texts(':pod:tier:'), texts(':pod:draining:'), texts(':lease:')
for _, pool in ipairs(pools) do
  local key = prefix .. ':pool:' .. pool[1]
  pool[5] = pool[2] == 'set' and redis.call('SMISMEMBER', key .. ':assigned', unpack(pods)) or {}
  pool[6] = pool[3] == 'set' and redis.call('SMISMEMBER', key .. ':available', unpack(pods))
    or pool[3] == 'zset' and redis.call('ZMSCORE', key .. ':available', unpack(pods)) or {}
end
local metadata = has_metadata and redis.call('HMGET', METADATA, unpack(pods)) or {}
local pending = has_pending and redis.call('HMGET', PENDING, unpack(pods)) or {}

local function read(number, key, ...)
  local found = redis.pcall(...)
  if type(found) ~= 'table' or not found.err then return found end
  note_wrong(number, key, type_of(key))
  return nil
end

-- The calls that are alive: the number of their pod, and their name.
local uids, suspended, calls = {}, {}, {}
for number, pod in ipairs(pods) do
  local own, members = {}, {}
  if not is_misnamed(pod) then
    own = read(number, pod_key(pod), 'HMGET', pod_key(pod), 'uid', 'suspended') or own
    members = read(number, calls_key(pod), 'SMEMBERS', calls_key(pod)) or members
  end
  uids[number], suspended[number] = own[1] or false, own[2] or false
  for _, call in ipairs(members) do
    if read(number, call_key(call), 'HGET', call_key(call), 'pod_name') == pod then
      local at = #calls
      calls[at + 1], calls[at + 2] = number, call
    end
  end
end
local columns = {tier_texts, draining, leases, uids, suspended, metadata, pending}
return {config, epoch, pools, is_whole and 1 or 0, wrong, pods, columns, calls}
