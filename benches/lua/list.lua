local function sieve(n)
  local prime = {}
  for i = 0, n do prime[#prime + 1] = true end
  local count = 0
  for i = 2, n do
    if prime[i + 1] then
      count = count + 1
      for j = i * i, n, i do prime[j + 1] = false end
    end
  end
  return count
end
local function quicksort(a, low, high)
  if low >= high then return end
  local pivot = a[(low + high) // 2]
  local i, j = low, high
  while i <= j do
    while a[i] < pivot do i = i + 1 end
    while a[j] > pivot do j = j - 1 end
    if i <= j then
      local t = a[i]
      a[i] = a[j]
      a[j] = t
      i = i + 1
      j = j - 1
    end
  end
  quicksort(a, low, j)
  quicksort(a, i, high)
end
local function sums(n)
  local a = {}
  local x = 42
  for i = 0, n - 1 do
    x = (x * 1103515245 + 12345) % 2147483648
    a[#a + 1] = x
  end
  quicksort(a, 1, n)
  local total = 0
  for i, x in ipairs(a) do total = total + x * ((i - 1) % 3) end
  return total
end
print(sieve(1000000), sums(200000))
