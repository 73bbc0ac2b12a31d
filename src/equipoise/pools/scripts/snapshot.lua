-- Reads pods, each at one moment: what it is in, and what its keys say. Changes nothing. Keys of a wrong type are
-- named, not read. A small fleet is found and read at once; of a large one the caller asks for some at a time,
-- since nobody else is answered meanwhile.
-- how many pods it may look for itself, the number of extra tiers, their names, then pods to read
local most, extra = tonumber(ARGV[3]), tonumber(ARGV[4])

local function type_of(key)
  local answer = redis.call('TYPE', key)
  return type(answer) == 'table' and answer.ok or answer
end

local pods, rows, seen = {}, {}, {}
local function note(pod)
  if seen[pod] then return end
  seen[pod] = true
  pods[#pods + 1] = pod
  rows[#rows + 1] = {pod, false, 0, false, {}, '', {}, '', {}, {}, false, false}
end

local function note_wrong(wrong, key, kind)
  wrong[#wrong + 1] = key
  wrong[#wrong + 1] = kind
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
  pools[#pools + 1] = {name, kind, free, assigned, available}
end

local others = {}
local function expect(key, kind)
  local found = type_of(key)
  if found ~= kind and found ~= 'none' then note_wrong(others, key, found) end
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
    if pool[2] == 'set' then for _, pod in ipairs(redis.call('SMEMBERS', key .. ':assigned')) do note(pod) end end
    local free = pool[3] == 'set' and redis.call('SMEMBERS', key .. ':available')
      or pool[3] == 'zset' and redis.call('ZRANGE', key .. ':available', 0, -1) or {}
    for _, pod in ipairs(free) do note(pod) end
  end
  if has_metadata then for _, pod in ipairs(redis.call('HKEYS', METADATA)) do note(pod) end end
end
if #pods == 0 then return {config, epoch, pools, rows, others, is_whole and 1 or 0} end

-- The texts of all pods under one beginning. MGET has none for a key of a wrong type.
local function texts(beginning, at, wrong_value)
  local keys, there = {}, 0
  for number, pod in ipairs(pods) do keys[number] = prefix .. beginning .. pod end
  local found = redis.call('MGET', unpack(keys))
  for number, text in ipairs(found) do
    rows[number][at] = text
    if text then there = there + 1 end
  end
  if redis.call('EXISTS', unpack(keys)) == there then return end
  for number, key in ipairs(keys) do
    local kind = not found[number] and type_of(key) or 'none'
    if kind ~= 'none' then
      rows[number][at] = wrong_value
      note_wrong(rows[number][7], key, kind)
    end
  end
end

texts(':pod:tier:', 2, false)
texts(':pod:draining:', 3, '')
texts(':lease:', 4, '')
for _, pool in ipairs(pools) do
  local key = prefix .. ':pool:' .. pool[1]
  local is_in = pool[2] == 'set' and redis.call('SMISMEMBER', key .. ':assigned', unpack(pods)) or {}
  for number, found in ipairs(is_in) do
    if found == 1 then rows[number][9][#rows[number][9] + 1] = pool[1] end
  end
  local scores = {}
  if pool[3] == 'zset' then
    scores = redis.call('ZMSCORE', key .. ':available', unpack(pods))
  elseif pool[3] == 'set' then
    for number, found in ipairs(redis.call('SMISMEMBER', key .. ':available', unpack(pods))) do
      scores[number] = found == 1 and '0'
    end
  end
  for number, score in ipairs(scores) do
    if score then note_wrong(rows[number][10], pool[1], score) end
  end
end
local metadata = has_metadata and redis.call('HMGET', METADATA, unpack(pods)) or {}
local pending = has_pending and redis.call('HMGET', PENDING, unpack(pods)) or {}

local function read(wrong, key, ...)
  local found = redis.pcall(...)
  if type(found) ~= 'table' or not found.err then return found end
  note_wrong(wrong, key, type_of(key))
  return nil
end
for number, pod in ipairs(pods) do
  local row = rows[number]
  row[3] = row[3] and 1 or 0
  row[11], row[12] = metadata[number] or false, pending[number] or false
  if not is_misnamed(pod) then
    local wrong, own, alive = row[7], pod_key(pod), {}
    local uid = read(wrong, own, 'HMGET', own, 'uid', 'suspended') or {}
    for _, call in ipairs(read(wrong, calls_key(pod), 'SMEMBERS', calls_key(pod)) or {}) do
      if read(wrong, call_key(call), 'HGET', call_key(call), 'pod_name') == pod then alive[#alive + 1] = call end
    end
    row[5], row[6], row[8] = alive, uid[1] or '', uid[2] or ''
  end
end
return {config, epoch, pools, rows, others, is_whole and 1 or 0}
