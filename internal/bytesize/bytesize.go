// Package bytesize reads and prints amounts of bytes with their units: memory in powers of
// 1024, as its makers count it, and what goes over a network or into files in powers of 1000.
package bytesize

import (
	"encoding/json"
	"fmt"
	"math"
	"strconv"
	"strings"
)

var units = map[string]float64{
	"": 1, "B": 1, "kB": 1e3, "MB": 1e6, "GB": 1e9, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30,
}

// Parse reads an amount: a number with one of the units kB, MB, GB (powers of 1000), KiB, MiB,
// GiB (powers of 1024) or B, which may be left out. It is above 0.
func Parse(text string) (int64, error) {
	number := strings.TrimRight(text, "BkKMGi ")
	unit, ok := units[strings.TrimSpace(text[len(number):])]
	v, err := strconv.ParseFloat(strings.TrimSpace(number), 64)
	if !ok || err != nil || !(v > 0 && v*unit < math.MaxInt64) {
		return 0, fmt.Errorf("got %.40q, want an amount of memory such as 24GB or 22GiB", text)
	}
	return int64(v * unit), nil
}

// FormatMemory writes an amount of memory for people: 512.0 MiB, 1.5 GiB.
func FormatMemory(n int64) string {
	if n < 1<<30 {
		return fmt.Sprintf("%.1f MiB", float64(n)/(1<<20))
	}
	return fmt.Sprintf("%.1f GiB", float64(n)/(1<<30))
}

// FormatSize writes an amount of stored or sent bytes for people, to two digits at least: 9.9 MB, 120 kB.
func FormatSize(n int64) string { return Rate(float64(n)) }

// Rate is like Text for an amount that need not be whole.
func Rate(v float64) string {
	unit := "B"
	for _, next := range []string{"kB", "MB", "GB", "TB"} {
		if math.Abs(v) < 999.5 {
			break
		}
		v, unit = v/1000, next
	}
	if unit != "B" && math.Abs(v) < 9.95 {
		return fmt.Sprintf("%.1f %s", v, unit)
	}
	return fmt.Sprintf("%.0f %s", v, unit)
}

// Size is an amount of bytes as flags and files give it: a number, or a text that Parse reads,
// or 0.
type Size int64

// String is what Set reads, with the largest unit that divides the size.
func (s Size) String() string {
	for _, unit := range []string{"GiB", "GB", "MiB", "MB"} {
		if n := int64(units[unit]); s != 0 && int64(s)%n == 0 {
			return fmt.Sprint(int64(s)/n, unit)
		}
	}
	return strconv.FormatInt(int64(s), 10)
}

// Set makes a Size a value of a flag.
func (s *Size) Set(text string) error {
	if strings.TrimSpace(text) == "0" {
		*s = 0
		return nil
	}
	n, err := Parse(text)
	if err != nil {
		return fmt.Errorf("got %.40q, want an amount of bytes such as 512MiB, 1GB or 0", text)
	}
	*s = Size(n)
	return nil
}

// Type is the name of a flag's value in help.
func (*Size) Type() string { return "size" }

// UnmarshalJSON reads a number of bytes or a text with a unit.
func (s *Size) UnmarshalJSON(data []byte) error {
	var text string
	if json.Unmarshal(data, &text) == nil {
		return s.Set(text)
	}
	n, err := strconv.ParseInt(string(data), 10, 64)
	if err != nil {
		return s.Set(string(data))
	}
	*s = Size(n)
	return nil
}
