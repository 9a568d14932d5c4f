package modeltest

import (
	"hash/fnv"
	"testing"
)

// Some returns all of what a test goes over, such as policies, families or types of caches. With -short, which .ci/run tests by,
// it is every third one, and at least one. Where they begin follows from the test's name, so that each test has others.
func Some[T any](t testing.TB, all []T) []T {
	if !testing.Short() || len(all) == 0 {
		return all
	}
	h := fnv.New32a()
	h.Write([]byte(t.Name()))
	var some []T
	for i := int(h.Sum32() % uint32(min(3, len(all)))); i < len(all); i += 3 {
		some = append(some, all[i])
	}
	return some
}
