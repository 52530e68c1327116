local function counter()
  local n = 0
  return function()
    n = n + 1
    return n
  end
end
local function compose(f, g) return function(x) local y = f(x) return (g(y)) end end
local function apply(f, n)
  local total = 0
  for i = 0, n - 1 do total = total + f(i) end
  return total
end
local total = 0
for i = 1, 200000 do
  local next = counter()
  next()
  total = total + next()
end
local chain = compose(function(x) return x + 1 end, compose(function(x) return x * 2 end, function(x) return x - 3 end))
total = total + apply(chain, 500000)
local tick = counter()
total = total + apply(function(x) return x + tick() end, 1000000)
print(total)
