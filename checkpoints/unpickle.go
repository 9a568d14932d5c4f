package checkpoints

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
)

// unpickler runs a pickle as far as it builds tensors, numbers, texts, lists, tuples and dictionaries (Python's pickletools has the
// operations). It calls nothing: what a call would make of anything else is opaque.
type unpickler struct {
	in       []byte
	stack    []any
	marks    []int // heights of the stack
	memo     map[int]any
	storage  func(key string) ([]byte, error)
	storages map[string]torchStorage
	err      error
}

var errPickleEnds = errors.New("the pickle ends early")

// take is the next n bytes, nil with p.err where there are fewer.
func (p *unpickler) take(n uint64) []byte {
	if n > uint64(len(p.in)) {
		p.err = errPickleEnds
		return nil
	}
	out := p.in[:n]
	p.in = p.in[n:]
	return out
}

// number is a little-endian number of n bytes.
func (p *unpickler) number(n uint64) (x uint64) {
	for i, b := range p.take(n) {
		x |= uint64(b) << (8 * i)
	}
	return x
}

// line is the text up to the next line feed.
func (p *unpickler) line() string {
	i := bytes.IndexByte(p.in, '\n')
	if i < 0 {
		p.err = errPickleEnds
		return ""
	}
	out := string(p.in[:i])
	p.in = p.in[i+1:]
	return out
}

func (p *unpickler) push(x any) { p.stack = append(p.stack, x) }

// pop takes the last n off the stack, above the last mark alone.
func (p *unpickler) pop(n int) []any {
	floor := 0
	if len(p.marks) > 0 {
		floor = p.marks[len(p.marks)-1]
	}
	if len(p.stack)-n < floor {
		p.err = errors.New("the pickle takes more off its stack than there is")
		return make([]any, n)
	}
	at := len(p.stack) - n
	out := append([]any(nil), p.stack[at:]...)
	p.stack = p.stack[:at]
	return out
}

// popMark takes off all above the last mark.
func (p *unpickler) popMark() []any {
	if len(p.marks) == 0 {
		p.err = errors.New("the pickle has no mark there")
		return nil
	}
	at := p.marks[len(p.marks)-1]
	out := p.pop(len(p.stack) - at)
	p.marks = p.marks[:len(p.marks)-1]
	return out
}

// top is what is last on the stack.
func (p *unpickler) top() any {
	x := p.pop(1)[0]
	if p.err == nil {
		p.push(x)
	}
	return x
}

// run is what the pickle comes to.
func (p *unpickler) run() (any, error) {
	for p.err == nil {
		op := p.take(1)
		if op == nil {
			break
		}
		if op[0] == '.' { // STOP
			return p.top(), p.err
		}
		if !p.constant(op[0]) && !p.build(op[0]) && !p.remember(op[0]) && p.err == nil {
			p.err = fmt.Errorf("operation %#x of the pickle is not known", op[0])
		}
	}
	return nil, p.err
}

// constant runs an operation that pushes a number, a text or a name.
func (p *unpickler) constant(op byte) bool {
	switch op {
	case 'N':
		p.push(nil)
	case 0x88, 0x89:
		p.push(op == 0x88)
	case 'K':
		p.push(int64(p.number(1)))
	case 'M':
		p.push(int64(p.number(2)))
	case 'J':
		p.push(int64(int32(p.number(4))))
	case 0x8a: // LONG1
		n := p.number(1)
		if n > 8 {
			p.take(n)
			p.push(torchOpaque{})
			break
		}
		x := int64(p.number(n))
		if n > 0 && n < 8 {
			x = x << (64 - 8*n) >> (64 - 8*n)
		}
		p.push(x)
	case 'G':
		if b := p.take(8); b != nil {
			p.push(math.Float64frombits(binary.BigEndian.Uint64(b)))
		}
	case 'X', 'T', 'B':
		p.push(string(p.take(p.number(4))))
	case 0x8c, 'U', 'C':
		p.push(string(p.take(p.number(1))))
	case 'c':
		p.push(torchGlobal(p.line() + "." + p.line()))
	case 0x93: // STACK_GLOBAL
		names := p.pop(2)
		module, _ := names[0].(string)
		name, _ := names[1].(string)
		p.push(torchGlobal(module + "." + name))
	default:
		return false
	}
	return true
}

// remember runs an operation on the memo, or one of no effect here.
func (p *unpickler) remember(op byte) bool {
	switch op {
	case 0x80: // PROTO
		p.take(1)
	case 0x95: // FRAME
		p.take(8)
	case 'q':
		p.memo[int(p.number(1))] = p.top()
	case 'r':
		p.memo[int(p.number(4))] = p.top()
	case 0x94: // MEMOIZE
		p.memo[len(p.memo)] = p.top()
	case 'h':
		p.push(p.memo[int(p.number(1))])
	case 'j':
		p.push(p.memo[int(p.number(4))])
	case '(':
		p.marks = append(p.marks, len(p.stack))
	case '0':
		p.pop(1)
	default:
		return false
	}
	return true
}

// build runs an operation that makes a thing of others.
func (p *unpickler) build(op byte) bool {
	switch op {
	case '}':
		p.push(torchDict{})
	case ']':
		p.push(new(torchList))
	case ')':
		p.push(torchTuple{})
	case 't':
		p.push(torchTuple(p.popMark()))
	case 0x85, 0x86, 0x87:
		p.push(torchTuple(p.pop(int(op-0x85) + 1)))
	case 'a':
		p.extend(p.pop(1))
	case 'e':
		p.extend(p.popMark())
	case 's':
		p.set(p.pop(2))
	case 'u':
		p.set(p.popMark())
	case 'R', 0x81: // REDUCE, NEWOBJ
		call := p.pop(2)
		p.push(p.call(call[0], call[1]))
	case 'b': // BUILD: what it would set stays unknown
		p.pop(1)
	case 'Q': // BINPERSID
		p.push(p.stored(p.pop(1)[0]))
	default:
		return false
	}
	return true
}

func (p *unpickler) extend(items []any) {
	if list, ok := p.top().(*torchList); ok {
		list.items = append(list.items, items...)
	}
}

func (p *unpickler) set(items []any) {
	dict, ok := p.top().(torchDict)
	for i := 0; ok && i+1 < len(items); i += 2 {
		if key, isText := items[i].(string); isText {
			dict[key] = items[i+1]
		}
	}
}

// call is what a function makes of its arguments, of those that tensors and dictionaries need.
func (p *unpickler) call(function, arguments any) any {
	args, _ := arguments.(torchTuple)
	switch function {
	case torchGlobal("collections.OrderedDict"):
		return torchDict{}
	case torchGlobal("torch._utils._rebuild_tensor_v2"):
		if len(args) < 4 {
			break
		}
		storage, isStorage := args[0].(torchStorage)
		offset, isNumber := args[1].(int64)
		shape, strides := wholes(args[2]), wholes(args[3])
		if isStorage && isNumber && shape != nil && len(shape) == len(strides) {
			return &torchTensor{storage, offset, shape, strides}
		}
	case torchGlobal("torch._utils._rebuild_parameter"):
		if len(args) > 0 {
			return args[0]
		}
	}
	return torchOpaque{}
}

// wholes are the numbers of a tuple; nil where it is none.
func wholes(x any) []int64 {
	tuple, ok := x.(torchTuple)
	if !ok {
		return nil
	}
	out := make([]int64, 0, len(tuple))
	for _, v := range tuple {
		n, ok := v.(int64)
		if !ok {
			return nil
		}
		out = append(out, n)
	}
	return out
}

// stored is the storage that a persistent id names: ("storage", type, key, device, numbers).
func (p *unpickler) stored(id any) any {
	tuple, _ := id.(torchTuple)
	if len(tuple) < 3 {
		return torchOpaque{}
	}
	kind, _ := tuple[1].(torchGlobal)
	key, _ := tuple[2].(string)
	dtype, ok := torchTypes[kind]
	if !ok || strings.ContainsAny(key, "/\\") {
		return torchOpaque{}
	}
	if known, ok := p.storages[key]; ok {
		return known
	}
	data, err := p.storage(key)
	if err != nil {
		p.err = err
		return torchOpaque{}
	}
	p.storages[key] = torchStorage{dtype, data}
	return p.storages[key]
}
