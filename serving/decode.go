package serving

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"reflect"
	"strconv"
	"unicode/utf8"

	"github.com/go-json-experiment/json"
	"github.com/go-json-experiment/json/jsontext"
)

// Bodies are I-JSON (RFC 7493): UTF-8, names that are compared exactly, each once. Every struct of a request has one of
// these as an embedded fallback, tagged `json:",embed"`, which says what becomes of members that it has no field for.
type (
	// unread members are named to the client as ignored, see ignore.
	unread map[string]unreadMember
	// unknown members are refused: a misspelt one would silently give another answer.
	unknown map[string]unknownMember

	unreadMember  struct{}
	unknownMember struct{}
)

// maxUnread bounds the members of a body that have no field.
const maxUnread = 1000

// readJSON reads the body of a request.
func readJSON(r *http.Request, to any) error {
	body, err := io.ReadAll(r.Body)
	var large *http.MaxBytesError
	var own *apiError
	switch {
	case errors.As(err, &own):
		return own
	case errors.As(err, &large):
		return failure(http.StatusRequestEntityTooLarge, invalidRequest, "request_too_large", "got a body of more than %d bytes", large.Limit)
	case err != nil:
		return refuse("", "the body ended early: %v", err)
	}
	if err := checkValues(r, body); err != nil {
		return err
	}
	body = bytes.TrimPrefix(body, []byte("\uFEFF"))
	if len(bytes.TrimSpace(body)) == 0 {
		return refuse("", "the body is empty, want a JSON object")
	}
	return decodeJSON(r.Context(), "", body, to)
}

// decodeJSON reads JSON of the field "at" of a request; "" is the body. Whole numbers are integers however they are
// written. Members that are null are as if they were not there; elements of lists may not be null.
func decodeJSON(ctx context.Context, at string, raw []byte, to any) error {
	members := 0
	err := json.Unmarshal(raw, to, json.WithUnmarshalers(json.JoinUnmarshalers(
		json.UnmarshalFromFunc(func(d *jsontext.Decoder, _ *unreadMember) error {
			if members++; members > maxUnread {
				return refuse("", "got more than %d fields that the server does not know", maxUnread)
			}
			if d.PeekKind() != 'n' {
				if err := ignore(ctx, joined(at, fieldOf(d.StackPointer()))); err != nil {
					return err
				}
			}
			return d.SkipValue()
		}),
		json.UnmarshalFromFunc(func(*jsontext.Decoder, *unknownMember) error { return errors.New("unknown field") }),
		json.UnmarshalFromFunc(integer[int]), json.UnmarshalFromFunc(integer[int32]), json.UnmarshalFromFunc(integer[int64]),
		json.UnmarshalFromFunc(element[string]), json.UnmarshalFromFunc(element[float64]), json.UnmarshalFromFunc(element[bool]),
	)))
	return ofJSON(at, raw, err)
}

// ofJSON says what is wrong with the JSON of a field.
func ofJSON(at string, raw []byte, err error) error {
	var own *apiError
	var syntax *jsontext.SyntacticError
	var kind *json.SemanticError
	switch {
	case err == nil:
		return nil
	case errors.As(err, &own):
		return own
	case errors.As(err, &syntax):
		param := joined(at, fieldOf(syntax.JSONPointer))
		switch {
		case errors.Is(err, jsontext.ErrDuplicateName):
			return refuse(param, "the key is there twice")
		case !utf8.Valid(raw):
			return refuse(param, "the body is not UTF-8 at byte %d", syntax.ByteOffset)
		}
		return refuse(param, "the body is not JSON: %v at byte %d", syntax.Err, syntax.ByteOffset)
	case errors.As(err, &kind):
		param := joined(at, fieldOf(kind.JSONPointer))
		if kind.Err != nil {
			return refuse(param, "%v", kind.Err)
		}
		return refuse(param, "got %s, want %s", kindName(kind.JSONKind), typeName(kind.GoType))
	}
	return refuse(at, "the body is not JSON as is wanted: %v", err)
}

// integer reads a whole number: 2.0 and 2e0 are 2, as in JSON Schema.
func integer[T int | int32 | int64](d *jsontext.Decoder, to *T) error {
	if d.PeekKind() != '0' {
		return element(d, to)
	}
	raw, err := d.ReadValue()
	if err != nil {
		return err
	}
	bits := reflect.TypeFor[T]().Bits()
	n, err := strconv.ParseInt(string(raw), 10, bits)
	if err != nil {
		f, _ := strconv.ParseFloat(string(raw), 64)
		switch most := math.Ldexp(1, bits-1); {
		case f != math.Trunc(f):
			return fmt.Errorf("got %.40s, want an integer", raw)
		case f < -most || f >= most:
			return fmt.Errorf("got %.40s, want an integer of %d to %d", raw, int64(-most), uint64(most)-1)
		}
		n = int64(f)
	}
	*to = T(n)
	return nil
}

// element refuses null in lists, where it would be zero: a token's id, or an empty text.
func element[T any](d *jsontext.Decoder, _ *T) error {
	if kind, _ := d.StackIndex(d.StackDepth()); kind == '[' && d.PeekKind() == 'n' {
		return fmt.Errorf("got null, want %s", typeName(reflect.TypeFor[T]()))
	}
	return errors.ErrUnsupported // in the usual way
}

// fieldOf writes a JSON pointer as OpenAI's API names fields: messages[0].content.
func fieldOf(p jsontext.Pointer) string {
	name := ""
	for token := range p.Tokens() {
		if _, err := strconv.ParseUint(token, 10, 64); err != nil {
			name = joined(name, token)
		} else {
			name += "[" + token + "]"
		}
	}
	return name
}

func joined(at, name string) string {
	if at == "" || name == "" || name[0] == '[' {
		return at + name
	}
	return at + "." + name
}

func kindName(k jsontext.Kind) string {
	switch k {
	case 'n':
		return "null"
	case 't', 'f':
		return "a boolean"
	case '"':
		return "a string"
	case '0':
		return "a number"
	case '[', ']':
		return "a list"
	}
	return "an object"
}

func typeName(t reflect.Type) string {
	switch t.Kind() {
	case reflect.Pointer:
		return typeName(t.Elem())
	case reflect.Bool:
		return "a boolean"
	case reflect.String:
		return "a string"
	case reflect.Float64, reflect.Float32:
		return "a number"
	case reflect.Int, reflect.Int32, reflect.Int64:
		return "an integer"
	case reflect.Slice:
		return "a list"
	}
	return "an object"
}

// stopTexts are one text or a list.
type stopTexts []string

func (s *stopTexts) UnmarshalJSONFrom(d *jsontext.Decoder) error {
	switch kind := d.PeekKind(); kind {
	case '"':
		*s = make(stopTexts, 1)
		return json.UnmarshalDecode(d, &(*s)[0])
	case '[', 'n':
		return json.UnmarshalDecode(d, (*[]string)(s))
	default:
		return fmt.Errorf("got %s, want a string or a list of strings", kindName(kind))
	}
}
