package io.gabion;

/** What was asked for cannot be: a wrong argument or option, or something too long. */
public class InvalidRequestException extends GabionException {
    private static final long serialVersionUID = 1;

    InvalidRequestException(Code code, String message) {
        super(code, message);
    }
}
