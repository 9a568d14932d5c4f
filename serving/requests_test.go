package serving

import (
	"reflect"
	"strings"
	"testing"
)

// TestFieldsWithoutNames: every struct of a request says what becomes of members that it has no field for.
func TestFieldsWithoutNames(t *testing.T) {
	for _, request := range []any{chatRequest{}, completionRequest{}, responseRequest{}, messagesRequest{}} {
		of := reflect.TypeOf(request)
		structs := 0
		var walk func(path string, of reflect.Type, promoted bool) (hears bool)
		walk = func(path string, of reflect.Type, promoted bool) (hears bool) {
			switch of.Kind() {
			case reflect.Pointer, reflect.Slice:
				return walk(path, of.Elem(), promoted)
			case reflect.Struct:
			default:
				return false
			}
			for i := range of.NumField() {
				f := of.Field(i)
				switch name, _, _ := strings.Cut(f.Tag.Get("json"), ","); {
				case f.Type == reflect.TypeFor[unread]() || f.Type == reflect.TypeFor[unknown]():
					hears = true
				case f.Anonymous:
					hears = walk(path, f.Type, true) || hears
				case name != "":
					walk(path+"."+name, f.Type, false)
				}
			}
			if structs++; !hears && !promoted {
				t.Errorf("%s: a struct without unread or unknown", path)
			}
			return hears
		}
		if walk(of.Name(), of, false); structs < 3 {
			t.Errorf("%s: %d structs", of.Name(), structs)
		}
	}
}
