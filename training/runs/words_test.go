package runs

import "testing"

func TestGrouped(t *testing.T) {
	for n, want := range map[int]string{7: "7", 999: "999", 1000: "1,000", 61440: "61,440", 1234567: "1,234,567"} {
		if got := grouped(n); got != want {
			t.Errorf("%d: %q, want %q", n, got, want)
		}
	}
}
