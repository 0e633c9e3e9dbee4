package main

import (
	"google.golang.org/protobuf/encoding/protowire"
)

// bytesCodec hands messages over as bytes.
type bytesCodec struct{}

func (bytesCodec) Marshal(message any) ([]byte, error) { return *message.(*[]byte), nil }

func (bytesCodec) Unmarshal(data []byte, message any) error {
	*message.(*[]byte) = append([]byte{}, data...)
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// claim is a Claim of a request.
type claim struct{ namespace, uid, name string }

type namedEntry struct {
	uid   string
	entry Entry
}

// claimsOf returns the claims of a NodePrepareResourcesRequest or NodeUnprepareResourcesRequest.
func claimsOf(request []byte) []claim {
	found := []claim{}
	eachField(request, func(_ protowire.Number, value []byte) {
		fields := map[protowire.Number]string{}
		eachField(value, func(number protowire.Number, text []byte) { fields[number] = string(text) })
		found = append(found, claim{fields[1], fields[2], fields[3]})
	})
	return found
}

// eachField visits the fields of a message, which must all be strings or messages.
func eachField(message []byte, visit func(protowire.Number, []byte)) {
	for len(message) > 0 {
		number, _, length := protowire.ConsumeTag(message)
		value, size := protowire.ConsumeBytes(message[length:])
		visit(number, value)
		message = message[length+size:]
	}
}

// prepared returns an entry of a NodePrepareResourcesResponse.
func prepared(entry Entry, shares bool) []byte {
	message := []byte{}
	for _, device := range entry.Devices {
		message = bytesField(message, 1, deviceMessage(device, shares))
	}
	return textField(message, 2, entry.Error)
}

// unprepared returns an entry of a NodeUnprepareResourcesResponse.
func unprepared(entry Entry) []byte { return textField(nil, 1, entry.Error) }

// responseOf returns a response of either method, with these entries.
func responseOf(entries []namedEntry, encode func(Entry) []byte) []byte {
	response := []byte{}
	for _, each := range entries {
		item := bytesField(textField(nil, 1, each.uid), 2, encode(each.entry))
		response = bytesField(response, 1, item)
	}
	return response
}

func deviceMessage(device Device, shares bool) []byte {
	message := []byte{}
	for _, request := range device.Requests {
		message = bytesField(message, 1, []byte(request))
	}
	message = textField(message, 2, device.Pool)
	message = textField(message, 3, device.Device)
	for _, id := range device.CDI {
		message = bytesField(message, 4, []byte(id))
	}
	if shares && device.ShareID != nil {
		message = bytesField(message, 5, []byte(*device.ShareID))
	}
	return message
}

var healthValues = map[string]uint64{"UNKNOWN": 0, "HEALTHY": 1, "UNHEALTHY": 2}

func reportOf(devices []Health) []byte {
	report := []byte{}
	for _, device := range devices {
		identifier := textField(textField(nil, 1, device.Pool), 2, device.Device)
		message := bytesField(nil, 1, identifier)
		message = numberField(message, 2, healthValues[device.Health])
		message = numberField(message, 4, uint64(device.Timeout))
		message = textField(message, 5, device.Message)
		report = bytesField(report, 1, message)
	}
	return report
}

func bytesField(message []byte, number protowire.Number, value []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(message, number, protowire.BytesType), value)
}

func textField(message []byte, number protowire.Number, text string) []byte {
	if text == "" {
		return message
	}
	return bytesField(message, number, []byte(text))
}

func numberField(message []byte, number protowire.Number, value uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(message, number, protowire.VarintType), value)
}
