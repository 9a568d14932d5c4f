package chat

import (
	"fmt"
	"strings"
	"time"
)

// strftimeLayouts are the directives of Python's strftime that dates in prompts
// are made of.
var strftimeLayouts = map[byte]string{
	'd': "02", 'm': "01", 'Y': "2006", 'y': "06", 'b': "Jan", 'B': "January", 'a': "Mon", 'A': "Monday",
	'H': "15", 'I': "03", 'M': "04", 'S': "05", 'p': "PM", 'j': "002", 'Z': "MST", 'z': "-0700",
	'F': "2006-01-02", 'T': "15:04:05",
}

// strftime formats a time as Python does; directives it does not know are an
// error.
func strftime(t time.Time, format string) (string, error) {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		i++
		// glibc's %-d leaves the leading zero out.
		bare := i < len(format) && format[i] == '-'
		if bare {
			i++
		}
		if i == len(format) {
			return "", fmt.Errorf("strftime_now: %q ends inside a directive", format)
		}
		if format[i] == '%' && !bare {
			b.WriteByte('%')
			continue
		}
		layout, ok := strftimeLayouts[format[i]]
		if !ok {
			return "", fmt.Errorf("strftime_now: %%%c in %q is not supported", format[i], format)
		}
		text := t.Format(layout)
		if bare && len(text) > 1 {
			text = strings.TrimLeft(text[:len(text)-1], "0") + text[len(text)-1:]
		}
		b.WriteString(text)
	}
	return b.String(), nil
}
