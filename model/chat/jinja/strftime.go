package jinja

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// strftime formats a time as Python does with a time that knows no zone: %z and %Z
// are empty. Directives that do not exist are written as they are, as by glibc.
func strftime(t time.Time, format string) string {
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		start := i
		i++
		flag := byte(0)
		upper := false
		for i < len(format) && strings.IndexByte("-_0^#", format[i]) >= 0 {
			if format[i] == '^' || format[i] == '#' {
				upper = true
			} else {
				flag = format[i]
			}
			i++
		}
		if i == len(format) {
			b.WriteString(format[start:])
			break
		}
		text, ok := directiveText(t, format[i], flag)
		if !ok {
			text = format[start : i+1]
		}
		if upper {
			text = strings.ToUpper(text)
		}
		b.WriteString(text)
	}
	return b.String()
}

// padTo writes a number with zeros or spaces in front, or without.
func padTo(n, width int, fill, flag byte) string {
	s := strconv.Itoa(n)
	switch flag {
	case '-':
		return s
	case '_':
		fill = ' '
	case '0':
		fill = '0'
	}
	return strings.Repeat(string(fill), max(0, width-len(s))) + s
}

func directiveText(t time.Time, c, flag byte) (string, bool) {
	year, week := t.ISOWeek()
	hour12 := (t.Hour()+11)%12 + 1
	two := func(n int) string { return padTo(n, 2, '0', flag) }
	switch c {
	case '%':
		return "%", true
	case 'n':
		return "\n", true
	case 't':
		return "\t", true
	case 'a':
		return t.Format("Mon"), true
	case 'A':
		return t.Format("Monday"), true
	case 'b', 'h':
		return t.Format("Jan"), true
	case 'B':
		return t.Format("January"), true
	case 'p':
		return t.Format("PM"), true
	case 'P':
		return t.Format("pm"), true
	case 'c':
		return strftime(t, "%a %b %e %H:%M:%S %Y"), true
	case 'x', 'D':
		return strftime(t, "%m/%d/%y"), true
	case 'X', 'T':
		return strftime(t, "%H:%M:%S"), true
	case 'r':
		return strftime(t, "%I:%M:%S %p"), true
	case 'R':
		return strftime(t, "%H:%M"), true
	case 'F':
		return strftime(t, "%Y-%m-%d"), true
	case 'd':
		return two(t.Day()), true
	case 'e':
		return padTo(t.Day(), 2, ' ', flag), true
	case 'm':
		return two(int(t.Month())), true
	case 'Y':
		return padTo(t.Year(), 0, '0', flag), true
	case 'y':
		return two(t.Year() % 100), true
	case 'C':
		return two(t.Year() / 100), true
	case 'G':
		return strconv.Itoa(year), true
	case 'g':
		return two(year % 100), true
	case 'V':
		return two(week), true
	case 'H':
		return two(t.Hour()), true
	case 'I':
		return two(hour12), true
	case 'k':
		return padTo(t.Hour(), 2, ' ', flag), true
	case 'l':
		return padTo(hour12, 2, ' ', flag), true
	case 'M':
		return two(t.Minute()), true
	case 'S':
		return two(t.Second()), true
	case 'f':
		return fmt.Sprintf("%06d", t.Nanosecond()/1000), true
	case 'j':
		return padTo(t.YearDay(), 3, '0', flag), true
	case 'u':
		return strconv.Itoa((int(t.Weekday())+6)%7 + 1), true
	case 'w':
		return strconv.Itoa(int(t.Weekday())), true
	case 'U':
		return two((t.YearDay() + 6 - int(t.Weekday())) / 7), true
	case 'W':
		return two((t.YearDay() + 6 - (int(t.Weekday())+6)%7) / 7), true
	case 's':
		return strconv.FormatInt(t.Unix(), 10), true
	case 'z', 'Z':
		return "", true
	}
	return "", false
}
