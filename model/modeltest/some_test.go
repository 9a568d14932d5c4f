package modeltest

import (
	"flag"
	"fmt"
	"slices"
	"testing"
)

// TestSome: all of them without -short; with it a third, at least one, and all of them over a few tests.
func TestSome(t *testing.T) {
	short := fmt.Sprint(testing.Short())
	defer flag.Set("test.short", short)
	all := []int{0, 1, 2, 3, 4, 5, 6}
	for _, n := range []int{0, 1, 2, 7} {
		flag.Set("test.short", "false")
		if got := Some(t, all[:n]); !slices.Equal(got, all[:n]) {
			t.Errorf("%v of %v without -short", got, all[:n])
		}
		flag.Set("test.short", "true")
		seen := make(map[int]bool)
		for i := range 20 {
			t.Run(fmt.Sprint(i), func(t *testing.T) {
				got := Some(t, all[:n])
				if len(got) < min(1, n) || len(got) > (n+2)/3 {
					t.Errorf("%v of %v", got, all[:n])
				}
				for _, x := range got {
					seen[x] = true
				}
			})
		}
		if len(seen) != n {
			t.Errorf("20 tests have seen %d of %d", len(seen), n)
		}
	}
}
